package cgroup

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// readV2 reads the files of every controller. A controller that is not enabled has no files,
// except cpu.stat and the pressures.
func (s *Stats) readV2(dir string) error {
	var errs []error
	for _, read := range []func(dir string) error{
		s.readPidsV2, s.readCPU, s.readMemoryV2, s.readIO, s.readHugetlbV2, s.readRDMA, s.readPressure,
	} {
		errs = append(errs, read(dir))
	}
	return errors.Join(errs...)
}

func (s *Stats) readPidsV2(dir string) (err error) {
	s.Pids, err = readGauge(dir, gauge{current: "pids.current", limit: "pids.max", max: "pids.peak"})
	return err
}

func (s *Stats) readMemoryV2(dir string) (err error) {
	if s.Memory, err = readKeyed(filepath.Join(dir, "memory.stat")); err != nil {
		return err
	}
	s.Usage = map[string]Gauge{}
	for name, f := range map[string]string{MemoryUsage: "memory", SwapUsage: "memory.swap"} {
		if s.Usage[name], err = readGauge(dir, gauge{current: f + ".current", limit: f + ".max", max: f + ".peak"}); err != nil {
			return err
		}
	}
	s.OOM, err = readKeyed(filepath.Join(dir, "memory.events"))
	return err
}

func (s *Stats) readIO(dir string) error {
	text, err := proc.ReadFile(filepath.Join(dir, "io.stat"))
	if err != nil && !isGone(err) {
		return err
	}
	s.IO = map[string][]IO{"": parseIO(text)}
	return nil
}

// parseIO reads lines of a device and pairs. A device may have none.
func parseIO(text []byte) (list []IO) {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		major, minor, ok := device(words[0])
		if !ok {
			continue
		}
		for name, n := range pairs(words[1:]) {
			list = addIO(list, major, minor, name, n)
		}
	}
	return list
}

func (s *Stats) readHugetlbV2(dir string) error {
	s.Hugetlb = map[string]Gauge{}
	for _, size := range pageSizes(dir, ".current") {
		f := "hugetlb." + size
		g, err := readGauge(dir, gauge{current: f + ".current", limit: f + ".max"})
		if err != nil {
			return err
		}
		events, err := readKeyed(filepath.Join(dir, f+".events"))
		if err != nil {
			return err
		}
		g.Failures = events["max"]
		s.Hugetlb[size] = g
	}
	return nil
}

// readPressure reads the pressure files. They are missing if the kernel was started with
// psi=0.
func (s *Stats) readPressure(dir string) error {
	s.Pressure = map[string]Pressure{}
	for _, what := range []string{"cpu", "memory", "io"} {
		text, err := proc.ReadFile(filepath.Join(dir, what+".pressure"))
		if isGone(err) || errors.Is(err, unix.EOPNOTSUPP) {
			continue
		}
		if err != nil {
			return err
		}
		s.Pressure[what] = parsePressure(text)
	}
	return nil
}

package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// tickNanoseconds is the length of a tick of cpuacct.stat: Linux always shows 100
// ticks per second to programs.
const tickNanoseconds = 1_000_000_000 / 100

// usagesV1 lists the amounts that the memory controller counts.
var usagesV1 = map[string]string{
	MemoryUsage: "memory", SwapUsage: "memory.memsw", KernelUsage: "memory.kmem", KernelTCPUsage: "memory.kmem.tcp",
}

// blkioFiles lists the statistics of devices and their files, the best file first: the
// files of an I/O scheduler are empty if the device has another scheduler.
var blkioFiles = map[string][]string{
	"io_service_bytes": {"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes", "blkio.bfq.io_service_bytes_recursive", "blkio.io_service_bytes_recursive"},
	"io_serviced":      {"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced", "blkio.bfq.io_serviced_recursive", "blkio.io_serviced_recursive"},
	"io_queued":        {"blkio.bfq.io_queued_recursive", "blkio.io_queued_recursive"},
	"io_service_time":  {"blkio.bfq.io_service_time_recursive", "blkio.io_service_time_recursive"},
	"io_wait_time":     {"blkio.bfq.io_wait_time_recursive", "blkio.io_wait_time_recursive"},
	"io_merged":        {"blkio.bfq.io_merged_recursive", "blkio.io_merged_recursive"},
	"time":             {"blkio.bfq.time_recursive", "blkio.time_recursive"},
	"sectors":          {"blkio.bfq.sectors_recursive", "blkio.sectors_recursive"},
}

// readV1 reads every mounted controller. dir returns the directory of a controller, or
// "".
func (s *Stats) readV1(dir func(controller string) string) error {
	var errs []error
	for controller, read := range map[string]func(dir string) error{
		"pids": s.readPidsV1, "cpu": s.readCPU, "cpuacct": s.readCPUTime, "memory": s.readMemoryV1,
		"blkio": s.readBlkio, "hugetlb": s.readHugetlbV1, "rdma": s.readRDMA,
	} {
		if d := dir(controller); d != "" {
			errs = append(errs, read(d))
		}
	}
	return errors.Join(errs...)
}

func (s *Stats) readPidsV1(dir string) (err error) {
	s.Pids, err = readGauge(dir, gauge{current: "pids.current", limit: "pids.max"})
	if s.Pids.Limit == math.MaxUint64 {
		s.Pids.Limit = 0 // the value that clients expect for no limit
	}
	return err
}

func (s *Stats) readCPUTime(dir string) error {
	total, err := readNumber(filepath.Join(dir, "cpuacct.usage"))
	if err != nil {
		return err
	}
	ticks, err := readKeyed(filepath.Join(dir, "cpuacct.stat"))
	if err != nil {
		return err
	}
	perCPU, err := proc.ReadFile(filepath.Join(dir, "cpuacct.usage_percpu"))
	if err != nil && !isGone(err) {
		return err
	}
	s.CPUTime = CPUTime{Total: total, User: ticks["user"] * tickNanoseconds, Kernel: ticks["system"] * tickNanoseconds}
	for word := range strings.FieldsSeq(string(perCPU)) {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return err
		}
		s.CPUTime.PerCPU = append(s.CPUTime.PerCPU, n)
	}
	return nil
}

func (s *Stats) readMemoryV1(dir string) (err error) {
	if s.Memory, err = readKeyed(filepath.Join(dir, "memory.stat")); err != nil {
		return err
	}
	s.Usage = map[string]Gauge{}
	for name, f := range usagesV1 {
		files := gauge{f + ".usage_in_bytes", f + ".limit_in_bytes", f + ".max_usage_in_bytes", f + ".failcnt"}
		if s.Usage[name], err = readGauge(dir, files); err != nil {
			return err
		}
	}
	if s.OOM, err = readKeyed(filepath.Join(dir, "memory.oom_control")); err != nil {
		return err
	}
	// The kernel counts a kill only in the cgroup of the killed process.
	kills := map[uint64]uint64{}
	if err := countBelow(dir, kills); err != nil {
		return err
	}
	s.OOM["oom_kill"] = 0
	for _, n := range kills {
		s.OOM["oom_kill"] += n
	}
	return nil
}

func (s *Stats) readBlkio(dir string) error {
	s.IO = map[string][]IO{}
	for name, files := range blkioFiles {
		for _, f := range files {
			text, err := proc.ReadFile(filepath.Join(dir, f))
			if err != nil && !isGone(err) {
				return err
			}
			if list := parseBlkio(text); len(list) > 0 {
				s.IO[name] = named(list)
				break
			}
		}
	}
	return nil
}

// named looks up the names of the devices.
func named(list []IO) []IO {
	for i, io := range list {
		if target, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", io.Major, io.Minor)); err == nil {
			list[i].Device = "/dev/" + filepath.Base(target)
		}
	}
	return list
}

// parseBlkio reads lines of a device, an operation in most files, and a number.
// The last line, which is the total, names no device.
func parseBlkio(text []byte) (list []IO) {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		major, minor, ok := device(words[0])
		n, err := strconv.ParseUint(words[len(words)-1], 10, 64)
		if !ok || err != nil {
			continue
		}
		op := ""
		if len(words) > 2 {
			op = words[1]
		}
		list = addIO(list, major, minor, op, n)
	}
	return list
}

func (s *Stats) readHugetlbV1(dir string) (err error) {
	s.Hugetlb = map[string]Gauge{}
	for _, size := range pageSizes(dir, ".usage_in_bytes") {
		f := "hugetlb." + size
		files := gauge{f + ".usage_in_bytes", f + ".limit_in_bytes", f + ".max_usage_in_bytes", f + ".failcnt"}
		if s.Hugetlb[size], err = readGauge(dir, files); err != nil {
			return err
		}
	}
	return nil
}

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Stats are the kernel's statistics of a cgroup and the cgroups below it. The statistics of
// a missing controller are zero, or missing. Keys of maps are the kernel's names, which the
// kernel's documents on cgroup-v1 and cgroup-v2 explain.
type Stats struct {
	Version int

	Pids    Gauge             // tasks
	CPU     map[string]uint64 // cpu.stat
	CPUTime CPUTime           // of version 1
	Memory  map[string]uint64 // memory.stat
	Usage   map[string]Gauge  // of memory in bytes, by the names below
	OOM     map[string]uint64 // memory.oom_control of version 1, memory.events of version 2
	IO      map[string][]IO   // by the names in blkioFiles; of version 2 under ""
	Hugetlb map[string]Gauge  // in bytes, by page size: 2MB
	RDMA    map[string]RDMA   // by device
	// Pressure has the pressures of cpu, memory and io, on version 2.
	Pressure map[string]Pressure
}

// Names of kinds of memory.
const (
	MemoryUsage    = "memory"
	SwapUsage      = "swap" // of version 1: memory and swap together
	KernelUsage    = "kernel"
	KernelTCPUsage = "kernel tcp"
)

// Gauge is an amount. Max is the highest amount so far, and Failures counts how often the
// limit was reached. If there is no limit, Limit is math.MaxUint64 on version 2; on version
// 1 it is 0 for tasks and a large number for memory.
type Gauge struct{ Current, Limit, Max, Failures uint64 }

// CPUTime is time in nanoseconds.
type CPUTime struct {
	Total, User, Kernel uint64
	PerCPU              []uint64
}

// IO is the input and output of a device. Values are by operation, with version 1's names
// (Read, Write, …, or "" if there is only one) or version 2's (rbytes, rios, …).
type IO struct {
	Major, Minor uint64
	Device       string // in /dev; of version 1
	Values       map[string]uint64
}

// RDMA is the handles and objects of a device. Without a limit, Limit is math.MaxUint64.
type RDMA struct{ Handles, Objects Gauge }

// Pressure is how long tasks have waited: Some while at least one task waited, Full while
// all of them did.
type Pressure struct{ Some, Full Stall }

// Stall is the share of time in per cent, and the total in microseconds.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                uint64
}

// Stats reads the statistics. It works after the cgroup's processes have ended. The
// error unwraps to fs.ErrNotExist if the cgroup was removed.
func (g *Group) Stats() (*Stats, error) {
	s := &Stats{Version: g.record.Version}
	_, err := os.Lstat(g.record.Dir())
	if err == nil && g.record.Version == 2 {
		err = s.readV2(g.record.Dirs[""])
	} else if err == nil {
		err = s.readV1(g.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: read its statistics: %w", g.Path(), err)
	}
	return s, nil
}

// gauge names the files of a Gauge. A file with an empty name is not read.
type gauge struct{ current, limit, max, failures string }

func readGauge(dir string, files gauge) (g Gauge, err error) {
	for _, f := range []struct {
		name string
		to   *uint64
	}{{files.current, &g.Current}, {files.limit, &g.Limit}, {files.max, &g.Max}, {files.failures, &g.Failures}} {
		if f.name == "" {
			continue
		}
		n, readErr := readNumber(filepath.Join(dir, f.name))
		*f.to, err = n, errors.Join(err, readErr)
	}
	return g, err
}

func (s *Stats) readCPU(dir string) (err error) {
	s.CPU, err = readKeyed(filepath.Join(dir, "cpu.stat"))
	return err
}

// pageSizes lists the sizes of huge pages that a cgroup counts. There is a file for each.
func pageSizes(dir, suffix string) []string {
	files, _ := filepath.Glob(filepath.Join(dir, "hugetlb.*"+suffix)) // the pattern is valid
	var sizes []string
	for _, f := range files {
		size := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "hugetlb."), suffix)
		if !strings.Contains(size, ".") { // leaves out names with a dot, such as 2MB.rsvd
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// readRDMA reads the files of the rdma controller, which are the same on both versions.
func (s *Stats) readRDMA(dir string) error {
	s.RDMA = map[string]RDMA{}
	for file, to := range map[string]func(*Gauge) *uint64{
		"rdma.current": func(g *Gauge) *uint64 { return &g.Current },
		"rdma.max":     func(g *Gauge) *uint64 { return &g.Limit },
	} {
		text, err := proc.ReadFile(filepath.Join(dir, file))
		if isGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			values := pairs(words[1:])
			r := s.RDMA[words[0]]
			*to(&r.Handles), *to(&r.Objects) = values["hca_handle"], values["hca_object"]
			s.RDMA[words[0]] = r
		}
	}
	return nil
}

// parsePressure reads a pressure file.
func parsePressure(text []byte) (p Pressure) {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		stall := map[string]*Stall{"some": &p.Some, "full": &p.Full}[words[0]]
		if stall == nil {
			continue
		}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			if share := map[string]*float64{"avg10": &stall.Avg10, "avg60": &stall.Avg60, "avg300": &stall.Avg300}[name]; share != nil {
				*share, _ = strconv.ParseFloat(value, 64) // 0 if it cannot be parsed
			}
		}
		stall.Total = pairs(words[1:])["total"]
	}
	return p
}

// addIO adds a value of a device.
func addIO(list []IO, major, minor uint64, op string, n uint64) []IO {
	i := slices.IndexFunc(list, func(e IO) bool { return e.Major == major && e.Minor == minor })
	if i < 0 {
		i, list = len(list), append(list, IO{Major: major, Minor: minor, Values: map[string]uint64{}})
	}
	list[i].Values[op] += n
	return list
}

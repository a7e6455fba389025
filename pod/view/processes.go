package view

import (
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// AppProcess is a process in an app's cgroup, or an app's first process.
type AppProcess struct {
	PID    int     `json:"pid"`
	Parent int     `json:"parent"`
	State  string  `json:"state"` // the kernel's letter: R, S, D, T, Z
	CPU    float64 `json:"cpu"`   // seconds of processor time, with that of children it has waited for
	Memory uint64  `json:"memory"`
	// Command is the name that the kernel has of the program. The arguments are not read:
	// they are in the memory of the process, which can make its reader wait for ever.
	Command string `json:"command"`
	First   bool   `json:"first,omitempty"` // the app's first process
}

// ticks is the number of clock ticks in a second, which is the same on all architectures
// that Go supports.
const ticks = 100

// Processes returns the processes of an app: those in its cgroup, or only the first one if
// it has no cgroup. Processes that end meanwhile are left out.
func (a *App) Processes() ([]AppProcess, error) {
	var pids []int
	if g := a.Group(); g != nil {
		var err error
		if pids, err = g.Pids(); err != nil {
			return nil, err
		}
	}
	first := 0
	if a.Process != nil && a.Process.Alive {
		first = a.Process.PID
		if len(pids) == 0 {
			pids = []int{first}
		}
	}
	list := []AppProcess{}
	for _, pid := range pids {
		if p, ok := processOf(pid); ok {
			p.First = pid == first
			list = append(list, p)
		}
	}
	return list, nil
}

// Group returns the app's cgroup, or nil if it has none any more.
func (a *App) Group() *cgroup.Group {
	if a.Cgroup == nil || a.otherBoot {
		return nil
	}
	g, err := cgroup.FromRecord(*a.Cgroup)
	if err != nil || g.Replaced() {
		return nil
	}
	return g
}

func processOf(pid int) (AppProcess, bool) {
	s, err := proc.ReadStat(pid)
	if err != nil {
		return AppProcess{}, false
	}
	p := AppProcess{PID: pid, Parent: s.Parent, State: string(s.State), CPU: float64(s.Ticks) / ticks}
	dir := "/proc/" + strconv.Itoa(pid)
	if name, err := os.ReadFile(dir + "/comm"); err == nil {
		p.Command = strings.TrimSuffix(string(name), "\n")
	}
	// statm has counters, which the kernel reads without touching the memory.
	if text, err := os.ReadFile(dir + "/statm"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 {
			pages, _ := strconv.ParseUint(f[1], 10, 64)
			p.Memory = pages * uint64(os.Getpagesize())
		}
	}
	return p, true
}

// Usage is what an app uses at a moment.
type Usage struct {
	Time   time.Time     `json:"time"`
	CPU    time.Duration `json:"cpu"`    // nanoseconds of processor time so far
	Memory uint64        `json:"memory"` // bytes, without page cache that can be dropped
	Limit  uint64        `json:"limit"`  // of memory; 0: none
	Pids   uint64        `json:"pids"`   // processes and threads
}

// Usage reads what an app uses from its cgroup's statistics. It returns nil if the app has
// no cgroup any more.
func (a *App) Usage() *Usage {
	g := a.Group()
	if g == nil {
		return nil
	}
	s, err := g.Stats()
	if err != nil {
		return nil
	}
	u := &Usage{Time: time.Now(), Pids: s.Pids.Current}
	memory := s.Usage[cgroup.MemoryUsage]
	inactive := s.Memory["inactive_file"]
	u.CPU = time.Duration(s.CPU["usage_usec"]) * time.Microsecond
	if s.Version == 1 {
		inactive = s.Memory["total_inactive_file"]
		u.CPU = time.Duration(s.CPUTime.Total)
	}
	u.Memory = memory.Current - min(inactive, memory.Current)
	// Without a limit version 1 has the largest multiple of a page.
	if memory.Limit < math.MaxInt64-1<<20 {
		u.Limit = memory.Limit
	}
	return u
}

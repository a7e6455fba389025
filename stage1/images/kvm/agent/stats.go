package main

import (
	"encoding/json"
	"math"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// These bound lists in an answer of app/stats, whose length is bounded.
const (
	maxProcesses  = 1024
	maxInterfaces = 64
)

// stats returns the document of app/stats, from the app's cgroup and the network, in which every app is.
func (a *agent) stats(p *app) ([]byte, error) {
	s, err := p.group.Stats()
	if err != nil {
		return nil, err
	}
	answer := convert(s)
	var interfaces []proc.Interface
	err = a.network.within(func() (err error) {
		runtime.LockOSThread() // so that the thread does not end
		defer runtime.UnlockOSThread()
		interfaces, err = proc.Interfaces(unix.Gettid())
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces[:min(len(interfaces), maxInterfaces)] {
		answer.Network = append(answer.Network, abi.NetworkStats{Name: i.Name, Receive: abi.TrafficStats(i.Receive), Transmit: abi.TrafficStats(i.Transmit)})
	}
	pids, err := p.group.Pids()
	if err != nil {
		return nil, err
	}
	execs := a.pod.Execs(p.name)
	for _, pid := range pids[:min(len(pids), maxProcesses)] {
		answer.Processes = append(answer.Processes, abi.ProcessStats{PID: pid, Exec: execs[pid]})
	}
	return json.Marshal(answer)
}

// convert translates the statistics of a version 2 cgroup.
func convert(s *cgroup.Stats) (a abi.StatsAnswer) {
	const microsecond = 1000
	memory, swap := s.Usage[cgroup.MemoryUsage], s.Usage[cgroup.SwapUsage]
	a.CPU = abi.CPUStats{
		Usage: s.CPU["usage_usec"] * microsecond, User: s.CPU["user_usec"] * microsecond, Kernel: s.CPU["system_usec"] * microsecond,
		Periods: s.CPU["nr_periods"], Throttled: s.CPU["nr_throttled"], ThrottledTime: s.CPU["throttled_usec"] * microsecond,
	}
	a.Memory = abi.MemoryStats{
		Usage: memory.Current, Limit: limit(memory.Limit), Max: memory.Max, SwapUsage: swap.Current,
		InactiveFile: s.Memory["inactive_file"], Anon: s.Memory["anon"], File: s.Memory["file"], OOMKills: s.OOM["oom_kill"],
	}
	a.Pids = abi.PidsStats{Current: s.Pids.Current, Limit: limit(s.Pids.Limit)}
	for _, io := range s.IO[""] {
		a.IO = append(a.IO, abi.IOStats{
			Major: io.Major, Minor: io.Minor, ReadBytes: io.Values["rbytes"], WriteBytes: io.Values["wbytes"],
			Reads: io.Values["rios"], Writes: io.Values["wios"],
		})
	}
	return a
}

// limit returns 0 for no limit.
func limit(n uint64) uint64 {
	if n == math.MaxUint64 {
		return 0
	}
	return n
}

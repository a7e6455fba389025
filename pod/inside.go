package pod

import (
	"context"
	"fmt"
	"math"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// inside asks the stage1 what it has counted of an app.
func (a *app) inside(ctx context.Context) (abi.StatsAnswer, error) {
	var s abi.StatsAnswer
	text, err := a.session.stage1.Ask(ctx, a.call(abi.AppStats))
	if err != nil {
		return s, err
	}
	if err := plainjson.Decode(text, &s); err != nil {
		return s, fmt.Errorf("container %s: stage1 %s: its answer to %s: %w", a.id, a.session.stage1.Name(), abi.AppStats, err)
	}
	return s, nil
}

// pidsInside is Pids of an app whose processes stage 0 does not see.
func (a *app) pidsInside(ctx context.Context) ([]ProcessInfo, error) {
	s, err := a.inside(ctx)
	if errdefs.IsNotFound(err) { // it has just ended
		return nil, fmt.Errorf("list processes: %v: %w", err, errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, err
	}
	infos := make([]ProcessInfo, 0, len(s.Processes))
	for _, p := range s.Processes {
		infos = append(infos, ProcessInfo{PID: p.PID, Exec: ExecID(p.Exec)})
	}
	return infos, nil
}

// counted converts an answer to the statistics of a cgroup.
func counted(s abi.StatsAnswer, version int) *cgroup.Stats {
	memory := cgroup.Gauge{Current: s.Memory.Usage, Limit: orUnlimited(s.Memory.Limit), Max: s.Memory.Max}
	swap := cgroup.Gauge{Current: s.Memory.SwapUsage, Limit: math.MaxUint64}
	st := &cgroup.Stats{
		Version: version,
		Pids:    cgroup.Gauge{Current: s.Pids.Current, Limit: s.Pids.Limit},
		CPUTime: cgroup.CPUTime{Total: s.CPU.Usage, User: s.CPU.User, Kernel: s.CPU.Kernel},
		CPU: map[string]uint64{
			"usage_usec": s.CPU.Usage / 1000, "user_usec": s.CPU.User / 1000, "system_usec": s.CPU.Kernel / 1000,
			"nr_periods": s.CPU.Periods, "nr_throttled": s.CPU.Throttled,
			"throttled_usec": s.CPU.ThrottledTime / 1000, "throttled_time": s.CPU.ThrottledTime,
		},
		Memory: map[string]uint64{
			"anon": s.Memory.Anon, "file": s.Memory.File, "inactive_file": s.Memory.InactiveFile,
			"rss": s.Memory.Anon, "total_rss": s.Memory.Anon, "cache": s.Memory.File, "total_cache": s.Memory.File,
			"total_inactive_file": s.Memory.InactiveFile, "hierarchical_memory_limit": memory.Limit,
		},
		OOM: map[string]uint64{"oom_kill": s.Memory.OOMKills},
		IO:  map[string][]cgroup.IO{},
	}
	if version == 1 {
		swap.Current += memory.Current // version 1 counts both together
	} else {
		st.Pids.Limit = orUnlimited(s.Pids.Limit)
	}
	st.Usage = map[string]cgroup.Gauge{cgroup.MemoryUsage: memory, cgroup.SwapUsage: swap}
	for _, d := range s.IO {
		if version == 2 {
			st.IO[""] = append(st.IO[""], cgroup.IO{Major: d.Major, Minor: d.Minor, Values: map[string]uint64{
				"rbytes": d.ReadBytes, "wbytes": d.WriteBytes, "rios": d.Reads, "wios": d.Writes,
			}})
			continue
		}
		for name, values := range map[string]map[string]uint64{
			"io_service_bytes": {"Read": d.ReadBytes, "Write": d.WriteBytes},
			"io_serviced":      {"Read": d.Reads, "Write": d.Writes},
		} {
			st.IO[name] = append(st.IO[name], cgroup.IO{Major: d.Major, Minor: d.Minor, Values: values})
		}
	}
	return st
}

// orUnlimited returns a limit in the form of package cgroup. A limit of 0 means no limit.
func orUnlimited(limit uint64) uint64 {
	if limit == 0 {
		return math.MaxUint64
	}
	return limit
}

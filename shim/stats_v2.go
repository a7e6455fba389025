package shim

import (
	"maps"
	"slices"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/wire/cgroup2"
)

// metricsV2 is the message of hosts with version 2 of cgroups.
func metricsV2(s pod.Stats) *cgroup2.Metrics {
	m := &cgroup2.Metrics{
		Pids:         &cgroup2.PidsStat{Current: s.Pids.Current, Limit: s.Pids.Limit},
		CPU:          &cgroup2.CPUStat{PSI: psi(s.Stats, "cpu")},
		Memory:       memoryV2(s.Stats),
		MemoryEvents: &cgroup2.MemoryEvents{},
		Io:           &cgroup2.IOStat{PSI: psi(s.Stats, "io")},
		Rdma:         &cgroup2.RdmaStat{},
	}
	fill(s.CPU, map[string]*uint64{
		"usage_usec": &m.CPU.UsageUsec, "user_usec": &m.CPU.UserUsec, "system_usec": &m.CPU.SystemUsec,
		"nr_periods": &m.CPU.NrPeriods, "nr_throttled": &m.CPU.NrThrottled, "throttled_usec": &m.CPU.ThrottledUsec,
		"nr_bursts": &m.CPU.NrBursts, "burst_usec": &m.CPU.BurstUsec,
	})
	e := m.MemoryEvents
	fill(s.OOM, map[string]*uint64{
		"low": &e.Low, "high": &e.High, "max": &e.Max, "oom": &e.Oom, "oom_kill": &e.OomKill, "oom_group_kill": &e.OomGroupKill,
	})
	for _, io := range s.IO[""] {
		entry := &cgroup2.IOEntry{Major: io.Major, Minor: io.Minor}
		fill(io.Values, map[string]*uint64{"rbytes": &entry.Rbytes, "wbytes": &entry.Wbytes, "rios": &entry.Rios, "wios": &entry.Wios})
		m.Io.Usage = append(m.Io.Usage, entry)
	}
	for _, size := range slices.Sorted(maps.Keys(s.Hugetlb)) {
		h := s.Hugetlb[size]
		m.Hugetlb = append(m.Hugetlb, &cgroup2.HugeTlbStat{Pagesize: size, Current: h.Current, Max: h.Limit, Failcnt: h.Failures})
	}
	for _, device := range slices.Sorted(maps.Keys(s.RDMA)) {
		r := s.RDMA[device]
		m.Rdma.Current = append(m.Rdma.Current, &cgroup2.RdmaEntry{Device: device, HcaHandles: uint32(r.Handles.Current), HcaObjects: uint32(r.Objects.Current)})
		m.Rdma.Limit = append(m.Rdma.Limit, &cgroup2.RdmaEntry{Device: device, HcaHandles: uint32(r.Handles.Limit), HcaObjects: uint32(r.Objects.Limit)})
	}
	for _, n := range s.Network {
		m.Network = append(m.Network, &cgroup2.NetworkStat{
			Name:    n.Name,
			RxBytes: n.Receive.Bytes, RxPackets: n.Receive.Packets, RxErrors: n.Receive.Errors, RxDropped: n.Receive.Dropped,
			TxBytes: n.Transmit.Bytes, TxPackets: n.Transmit.Packets, TxErrors: n.Transmit.Errors, TxDropped: n.Transmit.Dropped,
		})
	}
	return m
}

func memoryV2(s *cgroup.Stats) *cgroup2.MemoryStat {
	memory, swap := s.Usage[cgroup.MemoryUsage], s.Usage[cgroup.SwapUsage]
	m := &cgroup2.MemoryStat{
		Usage: memory.Current, UsageLimit: memory.Limit, MaxUsage: memory.Max,
		SwapUsage: swap.Current, SwapLimit: swap.Limit, SwapMaxUsage: swap.Max,
		PSI: psi(s, "memory"),
	}
	fill(s.Memory, map[string]*uint64{
		"anon": &m.Anon, "file": &m.File, "kernel_stack": &m.KernelStack, "slab": &m.Slab, "sock": &m.Sock, "shmem": &m.Shmem,
		"file_mapped": &m.FileMapped, "file_dirty": &m.FileDirty, "file_writeback": &m.FileWriteback, "anon_thp": &m.AnonThp,
		"inactive_anon": &m.InactiveAnon, "active_anon": &m.ActiveAnon,
		"inactive_file": &m.InactiveFile, "active_file": &m.ActiveFile, "unevictable": &m.Unevictable,
		"slab_reclaimable": &m.SlabReclaimable, "slab_unreclaimable": &m.SlabUnreclaimable,
		"pgfault": &m.Pgfault, "pgmajfault": &m.Pgmajfault,
		"workingset_refault": &m.WorkingsetRefault, "workingset_activate": &m.WorkingsetActivate, "workingset_nodereclaim": &m.WorkingsetNodereclaim,
		"pgrefill": &m.Pgrefill, "pgscan": &m.Pgscan, "pgsteal": &m.Pgsteal, "pgactivate": &m.Pgactivate, "pgdeactivate": &m.Pgdeactivate,
		"pglazyfree": &m.Pglazyfree, "pglazyfreed": &m.Pglazyfreed,
		"thp_fault_alloc": &m.ThpFaultAlloc, "thp_collapse_alloc": &m.ThpCollapseAlloc,
	})
	// Linux 5.9 has split these two.
	m.WorkingsetRefault += s.Memory["workingset_refault_anon"] + s.Memory["workingset_refault_file"]
	m.WorkingsetActivate += s.Memory["workingset_activate_anon"] + s.Memory["workingset_activate_file"]
	return m
}

// psi returns nil if the kernel provides no pressure information.
func psi(s *cgroup.Stats, what string) *cgroup2.PSIStats {
	p, ok := s.Pressure[what]
	if !ok {
		return nil
	}
	return &cgroup2.PSIStats{Some: stall(p.Some), Full: stall(p.Full)}
}

func stall(s cgroup.Stall) *cgroup2.PSIData {
	return &cgroup2.PSIData{Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300, Total: s.Total}
}

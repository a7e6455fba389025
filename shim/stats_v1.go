package shim

import (
	"maps"
	"slices"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/wire/cgroup1"
)

// metricsV1 is the message of hosts with version 1 of cgroups. CgroupStats, the number of
// tasks by state, is left out, as it is by runc's shim: counting them costs a request for
// each task, and no client uses the numbers.
func metricsV1(s pod.Stats) *cgroup1.Metrics {
	m := &cgroup1.Metrics{
		Pids: &cgroup1.PidsStat{Current: s.Pids.Current, Limit: s.Pids.Limit},
		CPU: &cgroup1.CPUStat{
			Usage: &cgroup1.CPUUsage{Total: s.CPUTime.Total, Kernel: s.CPUTime.Kernel, User: s.CPUTime.User, PerCPU: s.CPUTime.PerCPU},
			Throttling: &cgroup1.Throttle{
				Periods: s.CPU["nr_periods"], ThrottledPeriods: s.CPU["nr_throttled"], ThrottledTime: s.CPU["throttled_time"],
			},
		},
		Memory: memoryV1(s.Stats),
		MemoryOomControl: &cgroup1.MemoryOomControl{
			OomKillDisable: s.OOM["oom_kill_disable"], UnderOom: s.OOM["under_oom"], OomKill: s.OOM["oom_kill"],
		},
		Blkio: blkioV1(s.IO),
		Rdma:  &cgroup1.RdmaStat{},
	}
	for _, size := range slices.Sorted(maps.Keys(s.Hugetlb)) {
		h := s.Hugetlb[size]
		m.Hugetlb = append(m.Hugetlb, &cgroup1.HugetlbStat{Pagesize: size, Usage: h.Current, Max: h.Max, Failcnt: h.Failures})
	}
	for _, device := range slices.Sorted(maps.Keys(s.RDMA)) {
		r := s.RDMA[device]
		m.Rdma.Current = append(m.Rdma.Current, &cgroup1.RdmaEntry{Device: device, HcaHandles: uint32(r.Handles.Current), HcaObjects: uint32(r.Objects.Current)})
		m.Rdma.Limit = append(m.Rdma.Limit, &cgroup1.RdmaEntry{Device: device, HcaHandles: uint32(r.Handles.Limit), HcaObjects: uint32(r.Objects.Limit)})
	}
	for _, n := range s.Network {
		m.Network = append(m.Network, &cgroup1.NetworkStat{
			Name:    n.Name,
			RxBytes: n.Receive.Bytes, RxPackets: n.Receive.Packets, RxErrors: n.Receive.Errors, RxDropped: n.Receive.Dropped,
			TxBytes: n.Transmit.Bytes, TxPackets: n.Transmit.Packets, TxErrors: n.Transmit.Errors, TxDropped: n.Transmit.Dropped,
		})
	}
	return m
}

func memoryV1(s *cgroup.Stats) *cgroup1.MemoryStat {
	m := &cgroup1.MemoryStat{
		Usage: entryV1(s.Usage[cgroup.MemoryUsage]), Swap: entryV1(s.Usage[cgroup.SwapUsage]),
		Kernel: entryV1(s.Usage[cgroup.KernelUsage]), KernelTCP: entryV1(s.Usage[cgroup.KernelTCPUsage]),
	}
	fill(s.Memory, map[string]*uint64{
		"cache": &m.Cache, "rss": &m.RSS, "rss_huge": &m.RSSHuge, "mapped_file": &m.MappedFile,
		"dirty": &m.Dirty, "writeback": &m.Writeback,
		"pgpgin": &m.PgPgIn, "pgpgout": &m.PgPgOut, "pgfault": &m.PgFault, "pgmajfault": &m.PgMajFault,
		"inactive_anon": &m.InactiveAnon, "active_anon": &m.ActiveAnon,
		"inactive_file": &m.InactiveFile, "active_file": &m.ActiveFile, "unevictable": &m.Unevictable,
		"hierarchical_memory_limit": &m.HierarchicalMemoryLimit, "hierarchical_memsw_limit": &m.HierarchicalSwapLimit,
		"total_cache": &m.TotalCache, "total_rss": &m.TotalRSS, "total_rss_huge": &m.TotalRSSHuge, "total_mapped_file": &m.TotalMappedFile,
		"total_dirty": &m.TotalDirty, "total_writeback": &m.TotalWriteback,
		"total_pgpgin": &m.TotalPgPgIn, "total_pgpgout": &m.TotalPgPgOut, "total_pgfault": &m.TotalPgFault, "total_pgmajfault": &m.TotalPgMajFault,
		"total_inactive_anon": &m.TotalInactiveAnon, "total_active_anon": &m.TotalActiveAnon,
		"total_inactive_file": &m.TotalInactiveFile, "total_active_file": &m.TotalActiveFile, "total_unevictable": &m.TotalUnevictable,
	})
	return m
}

func entryV1(g cgroup.Gauge) *cgroup1.MemoryEntry {
	return &cgroup1.MemoryEntry{Limit: g.Limit, Usage: g.Current, Max: g.Max, Failcnt: g.Failures}
}

func blkioV1(all map[string][]cgroup.IO) *cgroup1.BlkIOStat {
	b := &cgroup1.BlkIOStat{}
	for name, to := range map[string]*[]*cgroup1.BlkIOEntry{
		"io_service_bytes": &b.IoServiceBytesRecursive, "io_serviced": &b.IoServicedRecursive,
		"io_queued": &b.IoQueuedRecursive, "io_service_time": &b.IoServiceTimeRecursive,
		"io_wait_time": &b.IoWaitTimeRecursive, "io_merged": &b.IoMergedRecursive,
		"time": &b.IoTimeRecursive, "sectors": &b.SectorsRecursive,
	} {
		for _, io := range all[name] {
			for _, op := range slices.Sorted(maps.Keys(io.Values)) {
				*to = append(*to, &cgroup1.BlkIOEntry{Op: op, Device: io.Device, Major: io.Major, Minor: io.Minor, Value: io.Values[op]})
			}
		}
	}
	return b
}

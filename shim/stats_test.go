package shim

import (
	"math"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// numberedKeys returns values that differ, from 1 on, for the kernel's names.
func numberedKeys(names ...string) map[string]uint64 {
	m := map[string]uint64{}
	for i, name := range names {
		m[name] = uint64(i + 1)
	}
	return m
}

func network() []proc.Interface {
	return []proc.Interface{{
		Name:    "eth0",
		Receive: proc.Traffic{Bytes: 1, Packets: 2, Errors: 3, Dropped: 4}, Transmit: proc.Traffic{Bytes: 5, Packets: 6, Errors: 7, Dropped: 8},
	}}
}

// askStats returns the answer of a service whose pod has the statistics s.
func askStats(t *testing.T, s pod.Stats, url string, into proto.Message) {
	t.Helper()
	b := newBench(t)
	_, err := call[task.StatsResponse](b, "Stats", &task.StatsRequest{ID: "a"})
	wantCode(t, err, codes.NotFound, "an unknown app")
	b.create("a")
	b.pod.stats = s
	resp := must[task.StatsResponse](b, "Stats", &task.StatsRequest{ID: "a"})
	if resp.Stats.TypeUrl != url {
		t.Errorf("type %q, want %q", resp.Stats.TypeUrl, url)
	}
	if err := proto.Unmarshal(resp.Stats.Value, into); err != nil {
		t.Fatal(err)
	}
}

// requirements.md#C4
func TestMetricsOfVersion1(t *testing.T) {
	memory := numberedKeys("cache", "rss", "rss_huge", "mapped_file", "dirty", "writeback", "pgpgin", "pgpgout", "pgfault", "pgmajfault",
		"inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable", "hierarchical_memory_limit", "hierarchical_memsw_limit",
		"total_cache", "total_rss", "total_rss_huge", "total_mapped_file", "total_dirty", "total_writeback", "total_pgpgin", "total_pgpgout",
		"total_pgfault", "total_pgmajfault", "total_inactive_anon", "total_active_anon", "total_inactive_file", "total_active_file", "total_unevictable")
	var got v1.Metrics
	askStats(t, pod.Stats{Network: network(), Stats: &cgroup.Stats{
		Version: 1, Pids: cgroup.Gauge{Current: 2, Limit: 9},
		CPU:     map[string]uint64{"nr_periods": 1, "nr_throttled": 2, "throttled_time": 3},
		CPUTime: cgroup.CPUTime{Total: 10, User: 4, Kernel: 5, PerCPU: []uint64{6, 7}},
		Memory:  memory, OOM: map[string]uint64{"oom_kill_disable": 1, "under_oom": 2, "oom_kill": 3},
		Usage: map[string]cgroup.Gauge{
			cgroup.MemoryUsage: {Current: 1, Limit: 2, Max: 3, Failures: 4}, cgroup.SwapUsage: {Current: 5},
			cgroup.KernelUsage: {Current: 6}, cgroup.KernelTCPUsage: {Current: 7},
		},
		IO: map[string][]cgroup.IO{
			"io_service_bytes": {{Major: 8, Minor: 1, Device: "/dev/sda1", Values: map[string]uint64{"Read": 1, "Write": 2}}},
			"sectors":          {{Major: 8, Minor: 1, Values: map[string]uint64{"": 3}}},
		},
		Hugetlb: map[string]cgroup.Gauge{"2MB": {Current: 1, Max: 2, Failures: 3, Limit: 4}, "1GB": {}},
		RDMA:    map[string]cgroup.RDMA{"mlx": {Handles: cgroup.Gauge{Current: 1, Limit: math.MaxUint64}, Objects: cgroup.Gauge{Current: 2, Limit: 3}}},
	}}, "io.containerd.cgroups.v1.Metrics", &got)
	want := &v1.Metrics{
		Pids: &v1.PidsStat{Current: 2, Limit: 9},
		CPU: &v1.CPUStat{
			Usage:      &v1.CPUUsage{Total: 10, User: 4, Kernel: 5, PerCPU: []uint64{6, 7}},
			Throttling: &v1.Throttle{Periods: 1, ThrottledPeriods: 2, ThrottledTime: 3},
		},
		MemoryOomControl: &v1.MemoryOomControl{OomKillDisable: 1, UnderOom: 2, OomKill: 3},
		Blkio: &v1.BlkIOStat{
			IoServiceBytesRecursive: []*v1.BlkIOEntry{
				{Op: "Read", Device: "/dev/sda1", Major: 8, Minor: 1, Value: 1}, {Op: "Write", Device: "/dev/sda1", Major: 8, Minor: 1, Value: 2},
			},
			SectorsRecursive: []*v1.BlkIOEntry{{Major: 8, Minor: 1, Value: 3}},
		},
		Hugetlb: []*v1.HugetlbStat{{Pagesize: "1GB"}, {Pagesize: "2MB", Usage: 1, Max: 2, Failcnt: 3}},
		Rdma: &v1.RdmaStat{
			Current: []*v1.RdmaEntry{{Device: "mlx", HcaHandles: 1, HcaObjects: 2}},
			Limit:   []*v1.RdmaEntry{{Device: "mlx", HcaHandles: math.MaxUint32, HcaObjects: 3}},
		},
		Network: []*v1.NetworkStat{{Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, TxDropped: 8}},
	}
	m := got.Memory
	got.Memory = nil
	if !proto.Equal(&got, want) {
		t.Errorf("%v, want\n%v", &got, want)
	}
	usage := &v1.MemoryEntry{Usage: 1, Limit: 2, Max: 3, Failcnt: 4}
	if !proto.Equal(m.Usage, usage) || m.Swap.Usage != 5 || m.Kernel.Usage != 6 || m.KernelTCP.Usage != 7 {
		t.Errorf("memory: %v", m)
	}
	expectNumbered(t, m.ProtoReflect(), len(memory))
}

// expectNumbered checks that the message has every value from 1 to n, so that no name of
// the kernel's was forgotten or used twice.
func expectNumbered(t *testing.T, m protoreflect.Message, n int) {
	t.Helper()
	found := map[uint64]protoreflect.Name{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Kind() == protoreflect.Uint64Kind {
			if other, ok := found[v.Uint()]; ok {
				t.Errorf("%s and %s are both %d", f.Name(), other, v.Uint())
			}
			found[v.Uint()] = f.Name()
		}
		return true
	})
	for i := range n {
		if _, ok := found[uint64(i+1)]; !ok {
			t.Errorf("value %d is missing", i+1)
		}
	}
	if len(found) != n {
		t.Errorf("%d fields, want %d: %v", len(found), n, found)
	}
}

// requirements.md#C4
func TestMetricsOfVersion2(t *testing.T) {
	memory := numberedKeys("anon", "file", "kernel_stack", "slab", "sock", "shmem", "file_mapped", "file_dirty", "file_writeback", "anon_thp",
		"inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable", "slab_reclaimable", "slab_unreclaimable", "pgfault",
		"pgmajfault", "workingset_refault_file", "workingset_activate_anon", "workingset_nodereclaim", "pgrefill", "pgscan", "pgsteal",
		"pgactivate", "pgdeactivate", "pglazyfree", "pglazyfreed", "thp_fault_alloc", "thp_collapse_alloc")
	n := uint64(len(memory))
	pressure := cgroup.Pressure{Some: cgroup.Stall{Avg10: 1.5, Avg60: 2, Avg300: 3, Total: 4}}
	var got v2.Metrics
	askStats(t, pod.Stats{Network: network(), Stats: &cgroup.Stats{
		Version: 2, Pids: cgroup.Gauge{Current: 2, Limit: math.MaxUint64},
		CPU:    numberedKeys("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec", "nr_bursts", "burst_usec"),
		Memory: memory, OOM: numberedKeys("low", "high", "max", "oom", "oom_kill", "oom_group_kill"),
		Usage: map[string]cgroup.Gauge{
			cgroup.MemoryUsage: {Current: n + 1, Limit: n + 2, Max: n + 3}, cgroup.SwapUsage: {Current: n + 4, Limit: n + 5, Max: n + 6},
		},
		IO:       map[string][]cgroup.IO{"": {{Major: 8, Minor: 1, Values: numberedKeys("rbytes", "wbytes", "rios", "wios")}}},
		Hugetlb:  map[string]cgroup.Gauge{"2MB": {Current: 1, Limit: 4, Failures: 3}},
		RDMA:     map[string]cgroup.RDMA{"mlx": {Objects: cgroup.Gauge{Current: 2, Limit: 3}}},
		Pressure: map[string]cgroup.Pressure{"cpu": pressure, "memory": pressure},
	}}, "io.containerd.cgroups.v2.Metrics", &got)
	expectNumbered(t, got.Memory.ProtoReflect(), len(memory)+6)
	expectNumbered(t, got.CPU.ProtoReflect(), 8)
	expectNumbered(t, got.MemoryEvents.ProtoReflect(), 6)
	psi := &v2.PSIStats{Some: &v2.PSIData{Avg10: 1.5, Avg60: 2, Avg300: 3, Total: 4}, Full: &v2.PSIData{}}
	if !proto.Equal(got.CPU.PSI, psi) || !proto.Equal(got.Memory.PSI, psi) || got.Io.PSI != nil {
		t.Errorf("pressure: %v, %v, %v", got.CPU.PSI, got.Memory.PSI, got.Io.PSI)
	}
	got.Memory, got.CPU, got.MemoryEvents = nil, nil, nil
	want := &v2.Metrics{
		Pids:    &v2.PidsStat{Current: 2, Limit: math.MaxUint64},
		Io:      &v2.IOStat{Usage: []*v2.IOEntry{{Major: 8, Minor: 1, Rbytes: 1, Wbytes: 2, Rios: 3, Wios: 4}}},
		Hugetlb: []*v2.HugeTlbStat{{Pagesize: "2MB", Current: 1, Max: 4, Failcnt: 3}},
		Rdma:    &v2.RdmaStat{Current: []*v2.RdmaEntry{{Device: "mlx", HcaObjects: 2}}, Limit: []*v2.RdmaEntry{{Device: "mlx", HcaObjects: 3}}},
		Network: []*v2.NetworkStat{{Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, TxDropped: 8}},
	}
	if !proto.Equal(&got, want) {
		t.Errorf("%v, want\n%v", &got, want)
	}
}

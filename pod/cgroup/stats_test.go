package cgroup

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func mustStats(t *testing.T, g *Group) *Stats {
	t.Helper()
	s, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holdAndSpin is a script of two processes: one holds 4 MB of memory, the other one uses all the
// CPU that it gets.
const holdAndSpin = "v=x; i=0; while [ $i -lt 22 ]; do v=$v$v; i=$((i+1)); done; while :; do :; done & wait; : $v"

// requirements.md#C4
func TestStatsAlsoWhenTheProcessesHaveEndedOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "stats", &specs.LinuxResources{
		Memory: memory(64<<20, 0), Pids: &specs.LinuxPids{Limit: ptr[int64](33)}, CPU: cpuMax(5000, 100000), // so little that a busy machine gives it, too
	})
	enter(t, g, holdAndSpin)
	var s *Stats
	wait.Until(t, "the processes use CPU and memory", func() bool {
		s = mustStats(t, g)
		return s.Pids.Current == 2 && s.CPU["throttled_time"] > 0 && s.CPUTime.User+s.CPUTime.Kernel > 0 && s.Memory["rss"] > 3_000_000
	})
	for what, ok := range map[string]bool{
		"version":                s.Version == 1,
		"limit of processes":     s.Pids.Limit == 33,
		"CPU time":               s.CPUTime.Total > 1e6 && s.CPUTime.User+s.CPUTime.Kernel > 0,
		"CPU time of each":       len(s.CPUTime.PerCPU) > 0,
		"throttled":              s.CPU["nr_periods"] > 0 && s.CPU["throttled_time"] > 0,
		"rss":                    s.Memory["rss"] > 3_000_000 && s.Memory["total_rss"] >= s.Memory["rss"],
		"hierarchical limit":     s.Memory["hierarchical_memory_limit"] == 64<<20,
		"usage":                  s.Usage[MemoryUsage].Current > 3_000_000 && s.Usage[MemoryUsage].Limit == 64<<20,
		"peak":                   s.Usage[MemoryUsage].Max >= s.Usage[MemoryUsage].Current,
		"kernel memory":          s.Usage[KernelUsage].Current > 0,
		"memory and swap":        s.Usage[SwapUsage].Limit == 0 || s.Usage[SwapUsage].Current >= s.Usage[MemoryUsage].Current,
		"the OOM killer is on":   s.OOM["oom_kill_disable"] == 0,
		"and has killed nobody":  s.OOM["oom_kill"] == 0,
		"no pressure on this":    s.Pressure == nil,
		"files of block devices": s.IO != nil,
	} {
		if !ok {
			t.Errorf("%s: %+v", what, s)
		}
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "no process is counted", func() bool { return mustStats(t, g).Pids.Current == 0 }) // zombies are there until they are reaped
	after := mustStats(t, g)
	if after.CPUTime.Total < s.CPUTime.Total || after.Usage[MemoryUsage].Max < s.Usage[MemoryUsage].Max {
		t.Errorf("after the end: %+v; before: %+v", after, s)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Stats(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the removal: %v", err)
	}
}

// requirements.md#C4
func TestStatsCountKillsBelow(t *testing.T) {
	needMemory(t)
	g := create(t, "stats-nested", limited16M())
	sub, tasks := below(t, g, "memory")
	enterDirs(t, sub, tasks, exhaust+"; exec sleep 60")
	wait.Until(t, "the kernel counts a kill", func() bool { return mustStats(t, g).OOM["oom_kill"] == 1 })
}

// requirements.md#C4
func TestStatsAlsoWhenTheProcessesHaveEndedOnVersion2(t *testing.T) {
	needV2(t)
	g := create(t, "stats", &specs.LinuxResources{
		Memory: memory(64<<20, 0), Pids: &specs.LinuxPids{Limit: ptr[int64](33)}, CPU: cpuMax(20000, 100000), // enough for an emulated machine to come to the loop
	})
	enter(t, g, holdAndSpin)
	var s *Stats
	wait.Until(t, "the processes use CPU and memory", func() bool {
		s = mustStats(t, g)
		return s.Pids.Current == 2 && s.CPU["throttled_usec"] > 0 && s.Memory["anon"] > 3_000_000
	})
	if s.Version != 2 || s.Pids.Limit != 33 || s.CPU["usage_usec"] == 0 || s.Memory["anon"] < 3_000_000 ||
		s.Usage[MemoryUsage].Current < 3_000_000 || s.Usage[MemoryUsage].Limit != 64<<20 {
		t.Errorf("%+v", s)
	}
	if _, ok := s.OOM["oom_kill"]; !ok {
		t.Errorf("no memory.events: %+v", s)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := mustStats(t, g); after.CPU["usage_usec"] < s.CPU["usage_usec"] {
		t.Errorf("after the end: %+v; before: %+v", after, s)
	}
}

// requirements.md#C4
func TestStatsWithoutControllers(t *testing.T) {
	g := newV2(t, "stats") // what there is is read, the rest is 0
	enterDirs(t, g.dirs, "cgroup.procs", "while :; do :; done")
	wait.Until(t, "CPU time is counted", func() bool { return mustStats(t, g).CPU["usage_usec"] > 0 })
}

// requirements.md#C4
func TestTheKernelsFilesOfVersion2(t *testing.T) {
	g := directory(t, map[string]string{
		"pids.current": "3\n", "pids.max": "max\n", "pids.peak": "7\n",
		"cpu.stat":       "usage_usec 2500\nuser_usec 1500\nsystem_usec 1000\nnr_periods 5\nnr_throttled 2\nthrottled_usec 90\nnr_bursts 1\nburst_usec 8\n",
		"memory.stat":    "anon 100\nfile 200\ninactive_file 50\nworkingset_refault_anon 1\n",
		"memory.current": "4096\n", "memory.max": "max\n", "memory.peak": "8192\n",
		"memory.swap.current": "10\n", "memory.swap.max": "20\n",
		"memory.events": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n",
		"io.stat":       "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n8:16 \n253:7 rbytes=9 wbytes=0 rios=1 wios=0\n",
		"io.pressure":   "some avg10=1.50 avg60=0.25 avg300=0.00 total=77\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=33\n",
		"cpu.pressure":  "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", "memory.pressure": "",
		"hugetlb.2MB.current": "4096\n", "hugetlb.2MB.max": "8192\n", "hugetlb.2MB.events": "max 4\n", "hugetlb.2MB.rsvd.current": "1\n",
		"rdma.current": "mlx4_0 hca_handle=1 hca_object=2\n", "rdma.max": "mlx4_0 hca_handle=max hca_object=20\n",
	})
	s := mustStats(t, g)
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"pids", s.Pids, Gauge{Current: 3, Limit: math.MaxUint64, Max: 7}},
		{"cpu", s.CPU["burst_usec"], uint64(8)},
		{"memory.stat", s.Memory["inactive_file"], uint64(50)},
		{"memory", s.Usage[MemoryUsage], Gauge{Current: 4096, Limit: math.MaxUint64, Max: 8192}},
		{"swap", s.Usage[SwapUsage], Gauge{Current: 10, Limit: 20}},
		{"events", s.OOM["oom_group_kill"], uint64(6)},
		{"hugetlb", s.Hugetlb, map[string]Gauge{"2MB": {Current: 4096, Limit: 8192, Failures: 4}}},
		{"rdma", s.RDMA, map[string]RDMA{"mlx4_0": {Gauge{Current: 1, Limit: math.MaxUint64}, Gauge{Current: 2, Limit: 20}}}},
		{"io pressure", s.Pressure["io"], Pressure{Stall{1.5, 0.25, 0, 77}, Stall{0.5, 0, 0, 33}}},
		{"cpu pressure", s.Pressure["cpu"], Pressure{Some: Stall{Total: 5}}},
		{"io", s.IO[""], []IO{
			{8, 0, "", map[string]uint64{"rbytes": 1, "wbytes": 2, "rios": 3, "wios": 4, "dbytes": 5, "dios": 6}},
			{253, 7, "", map[string]uint64{"rbytes": 9, "wbytes": 0, "rios": 1, "wios": 0}},
		}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, c.got, c.want)
		}
	}
	if err := os.WriteFile(filepath.Join(g.Dir(""), "memory.current"), []byte("lots"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Stats(); err == nil {
		t.Error("memory.current: \"lots\" was taken for a number")
	}
}

func TestTheKernelsBlkioFiles(t *testing.T) {
	got := parseBlkio([]byte("8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 1\nTotal 31\n"))
	want := []IO{{8, 0, "", map[string]uint64{"Read": 10, "Write": 20, "Total": 30}}, {8, 16, "", map[string]uint64{"Read": 1}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := parseBlkio([]byte("8:0 512\n")); !slices.EqualFunc(got, []uint64{512}, func(e IO, n uint64) bool { return e.Values[""] == n }) {
		t.Errorf("sectors: %+v", got)
	}
}

func FuzzStatsParsers(f *testing.F) {
	f.Add([]byte("8:0 Read 10\n8:0 rbytes=1 wios=max\nsome avg10=1.5 total=7\noom_kill 3\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		parseBlkio(text)
		parseIO(text)
		parsePressure(text)
		keyed(text)
	})
}

func BenchmarkStats(b *testing.B) {
	needHost(b)
	g := create(b, "bench-stats", nil)
	for b.Loop() {
		if _, err := g.Stats(); err != nil {
			b.Fatal(err)
		}
	}
}

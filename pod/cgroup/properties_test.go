package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func shares(n uint64) *specs.LinuxCPU { return &specs.LinuxCPU{Shares: &n} }

func (p properties) String() string {
	var words []string
	for _, q := range p {
		if q.value == unset {
			q.value = "unset"
		}
		words = append(words, fmt.Sprintf("%s=%v", q.name, q.value))
	}
	return strings.Join(words, " ")
}

// requirements.md#C2
func TestTheLimitsOfAnAppAreThoseOfItsScope(t *testing.T) {
	for _, c := range []struct {
		res    specs.LinuxResources
		v1, v2 string
	}{
		{specs.LinuxResources{}, "TasksMax=unset", "TasksMax=unset"},
		{specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](7)}}, "TasksMax=8", "TasksMax=8"}, // with the placeholder
		{specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](0)}}, "TasksMax=2", "TasksMax=2"},
		{specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](-1)}}, "TasksMax=unset", "TasksMax=unset"},
		{specs.LinuxResources{CPU: shares(102)}, "TasksMax=unset CPUShares=102", "TasksMax=unset CPUWeight=17"},
		{specs.LinuxResources{CPU: cpuMax(10100, 100000)}, "TasksMax=unset CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=110000",
			"TasksMax=unset CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=110000"},
		{specs.LinuxResources{CPU: cpuMax(-1, 100000)}, "TasksMax=unset CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=unset",
			"TasksMax=unset CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=unset"},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](math.MaxInt64)}}, "TasksMax=unset CPUQuotaPerSecUSec=unset", "TasksMax=unset CPUQuotaPerSecUSec=unset"},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0-1,9", Mems: "0"}}, "TasksMax=unset", "TasksMax=unset AllowedCPUs=[3 2] AllowedMemoryNodes=[1]"},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr[uint64](1024), Idle: ptr[int64](1)}}, "TasksMax=unset CPUShares=1024", "TasksMax=unset CPUWeight=0"},
		{specs.LinuxResources{Memory: memory(64<<20, 96<<20)}, "TasksMax=unset MemoryLimit=67108864", "TasksMax=unset MemoryMax=67108864 MemorySwapMax=33554432"},
		{specs.LinuxResources{Memory: memory(64<<20, 64<<20)}, "TasksMax=unset MemoryLimit=67108864", "TasksMax=unset MemoryMax=67108864 MemorySwapMax=0"},
		{specs.LinuxResources{Memory: memory(-1, 0)}, "TasksMax=unset MemoryLimit=unset", "TasksMax=unset MemoryMax=unset MemorySwapMax=unset"},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20), DisableOOMKiller: ptr(true)}}, "TasksMax=unset", "TasksMax=unset MemoryMax=67108864"},
		{specs.LinuxResources{BlockIO: &specs.LinuxBlockIO{Weight: ptr[uint16](500)}}, "TasksMax=unset BlockIOWeight=500", "TasksMax=unset IOWeight=4950"},
		{specs.LinuxResources{Unified: map[string]string{"memory.min": "32M"}}, "TasksMax=unset", "TasksMax=unset MemoryMin=33554432"},
		{specs.LinuxResources{Unified: map[string]string{"memory.low": "4096"}}, "TasksMax=unset", "TasksMax=unset MemoryLow=4096"},
		{specs.LinuxResources{Unified: map[string]string{"memory.high": "max"}}, "TasksMax=unset", "TasksMax=unset MemoryHigh=unset"},
		{specs.LinuxResources{Unified: map[string]string{"memory.oom.group": "1"}}, "TasksMax=unset", "TasksMax=unset"},
		{specs.LinuxResources{Unified: map[string]string{"pids.max": "9"}}, "TasksMax=unset", "TasksMax=10"},
		{specs.LinuxResources{Unified: map[string]string{"cpu.max": "50000 100000"}}, "TasksMax=unset", "TasksMax=unset CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=500000"},
		{specs.LinuxResources{Unified: map[string]string{"cpu.max": "max"}}, "TasksMax=unset", "TasksMax=unset CPUQuotaPerSecUSec=unset"},
		{specs.LinuxResources{Unified: map[string]string{"io.weight": "default 200"}}, "TasksMax=unset", "TasksMax=unset IOWeight=200"},
		{specs.LinuxResources{Unified: map[string]string{"io.weight": "8:0 200"}}, "TasksMax=unset", "TasksMax=unset"},
		{specs.LinuxResources{Unified: map[string]string{"cpuset.cpus": "1"}}, "TasksMax=unset", "TasksMax=unset AllowedCPUs=[2]"},
		{specs.LinuxResources{Unified: map[string]string{"cpu.weight": "nonsense"}}, "TasksMax=unset", "TasksMax=unset"},
	} {
		for version, want := range map[int]string{1: c.v1, 2: c.v2} {
			if got, err := scopeLimits(&c.res, version); err != nil || got.String() != want {
				t.Errorf("version %d, %+v: %s, %v; want %s", version, c.res, got, err, want)
			}
		}
	}
}

func TestAPropertyThatSystemdLacksIsNotSent(t *testing.T) {
	limits, err := scopeLimits(&specs.LinuxResources{
		CPU:     &specs.LinuxCPU{Quota: ptr[int64](5000), Period: ptr[uint64](100000), Cpus: "0", Mems: "0"},
		Unified: map[string]string{"memory.min": "1", "cpu.idle": "1"},
	}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for version, lacks := range map[int][]string{
		252: nil, 251: {"CPUWeight"}, 244: {"CPUWeight"}, 243: {"CPUWeight", "AllowedCPUs", "AllowedMemoryNodes"},
		239: {"CPUWeight", "AllowedCPUs", "AllowedMemoryNodes", "CPUQuotaPeriodUSec", "MemoryMin"},
	} {
		has := limits.known(version)
		for _, p := range limits {
			if has.has(p.name) == slices.Contains(lacks, p.name) {
				t.Errorf("version %d: %s is sent: %v", version, p.name, has.has(p.name))
			}
		}
	}
	for text, want := range map[string]int{`"252.39-1~deb12u1"`: 252, `"v245.4-1.fc32"`: 245, "239": 239, "": 0, "v": 0} {
		if n, err := versionOf(text); n != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

// ofScope reads a file of a group's scope, as programs such as cAdvisor do.
func ofScope(t *testing.T, g *Group, controller, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(g.Dir(controller)), file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func inScope(t *testing.T, m Maker, h *hierarchies, triple string, res *specs.LinuxResources) *Group {
	t.Helper()
	g, err := m.create(h, Path{Spec: triple}, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leave(t, g, h) })
	return g
}

// requirements.md#C2
func TestTheFilesOfAScopeAreTheAppsOnVersion1(t *testing.T) {
	needV1(t)
	withScopes(t, func(t *testing.T, m Maker, h *hierarchies, f *fakeSystemd, triple string) {
		if h.version != 1 {
			t.Skip("the version 2 hierarchy of a hybrid host has no controllers")
		}
		cpu := cpuMax(10100, 100000)
		cpu.Shares = ptr[uint64](102)
		g := inScope(t, m, h, triple, &specs.LinuxResources{Devices: denyAll, CPU: cpu, Memory: memory(64<<20, 0), Pids: &specs.LinuxPids{Limit: ptr[int64](7)}})
		expect := func(controller, file, app, scope string) {
			t.Helper()
			if got, above := read(t, g, controller, file), ofScope(t, g, controller, file); got != app || above != scope {
				t.Errorf("%s is %s in the app's cgroup, want %s, and %s in the scope, want %s", file, got, app, above, scope)
			}
		}
		expect("cpu", "cpu.shares", "102", "102")
		expect("cpu", "cpu.cfs_quota_us", "10100", "11000")
		expect("memory", "memory.limit_in_bytes", "67108864", "67108864")
		expect("pids", "pids.max", "7", "8")

		change := func(res specs.LinuxResources) func() error {
			t.Helper()
			f.set = nil
			undo, err := g.update(h, &res)
			if err != nil {
				t.Fatal(err)
			}
			return undo
		}
		undo := change(specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](20000), Shares: ptr[uint64](204)}})
		expect("cpu", "cpu.cfs_quota_us", "20000", "20000")
		expect("cpu", "cpu.shares", "204", "204")
		if len(f.set) != 2 || f.set[0].String() != "CPUQuotaPerSecUSec=200000" || f.set[1].String() != "CPUShares=204" {
			t.Errorf("systemd was asked for %v; the quota is raised first", f.set)
		}
		change(specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](5000)}, Memory: memory(32<<20, 0)})
		expect("cpu", "cpu.cfs_quota_us", "5000", "5000")
		expect("memory", "memory.limit_in_bytes", "33554432", "33554432")
		if len(f.set) != 1 {
			t.Errorf("systemd was asked for %v; the bounds are lowered last", f.set)
		}
		change(specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](20000)}, Memory: memory(64<<20, 0)})
		if err := undo(); err != nil {
			t.Error(err)
		}
		expect("cpu", "cpu.cfs_quota_us", "10100", "11000")
		expect("cpu", "cpu.shares", "102", "102")

		f.fails = errors.New("systemd is gone")
		if _, err := g.update(h, &specs.LinuxResources{CPU: shares(300)}); err == nil || !strings.Contains(err.Error(), "systemd is gone") {
			t.Errorf("without systemd: %v", err)
		}
		expect("cpu", "cpu.shares", "102", "102")
		if _, err := g.update(h, &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](30000), Cpus: "4000"}}); err == nil {
			t.Error("CPU 4000 was found")
		}
		expect("cpu", "cpu.cfs_quota_us", "10100", "11000")
	})
}

// The scope has a few pages more than the app's cgroup, the placeholder's, so it may be the one that runs out.
// requirements.md#C5
func TestAnOOMThatBeginsInTheScopeIsTheAppsOnVersion1(t *testing.T) {
	needV1(t)
	needMemory(t)
	withScopes(t, func(t *testing.T, m Maker, h *hierarchies, f *fakeSystemd, triple string) {
		if h.version != 1 {
			t.Skip("the version 2 hierarchy of a hybrid host has no controllers")
		}
		g := inScope(t, m, h, triple, &specs.LinuxResources{Devices: denyAll, Memory: memory(16<<20, 0)})
		expectOOMOfScope(t, g, "memory.limit_in_bytes", "exec "+exhaust)
	})
}

// This test needs a host whose first process is systemd. On version 2 the whole app is killed.
// requirements.md#C5
func TestAnOOMInAScopeOfSystemds(t *testing.T) {
	h := needMemory(t)
	if h.systemd == nil {
		t.Skip("systemd does not run")
	}
	children := proc.NewChildren()
	t.Cleanup(func() {
		if err := children.Close(within(t, 10*time.Second)); err != nil {
			t.Errorf("a placeholder is left: %v", err)
		}
	})
	res, file := limited16M(), "memory.limit_in_bytes"
	if h.version == 2 {
		res.Unified, file = map[string]string{"memory.oom.group": "1"}, "memory.max"
	}
	g, err := Maker{Children: children}.Create(Path{Spec: fmt.Sprintf("rkttest%d.slice:rkt:oom", os.Getpid())}, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, g) })
	if got := ofScope(t, g, "memory", file); got != strconv.Itoa(16<<20) {
		t.Errorf("%s of the scope is %s", file, got)
	}
	script := "exec " + exhaust
	if h.version == 2 {
		script = exhaust + "; exec sleep 300"
	}
	expectOOMOfScope(t, g, file, script)
}

// expectOOMOfScope lowers the limit of a scope below that of its app, and runs a script that needs more.
func expectOOMOfScope(t *testing.T, g *Group, file, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(g.Dir("memory")), file), []byte("12582912"), 0); err != nil {
		t.Fatal(err)
	}
	_, published := watch(t, g)
	<-enter(t, g, script).ended
	wait.Until(t, "the kill is published", func() bool { return published() > 0 })
	p := g.Record().Placeholder
	if !proc.Alive(p.PID, p.StartTime) {
		t.Error("the placeholder was killed")
	}
	if n := mustStats(t, g).OOM["oom_kill"]; n == 0 {
		t.Errorf("the app has %d kills", n)
	}
}

// A program that debugs an app must not be within the app's limits.
func TestTheCgroupBesideAScopeIsAnotherScope(t *testing.T) {
	for path, want := range map[string]string{
		"/a.slice/a-b.slice/x.scope/app": "a-b.slice::debug", "/x.scope/app": "-.slice::debug",
	} {
		g := newGroup(Record{Version: 2, Path: path, Placeholder: &Placeholder{}}, nil)
		if got := g.Beside("debug"); got != want {
			t.Errorf("beside %s is %s, want %s", path, got, want)
		}
	}
	for path, want := range map[string]string{"/a/b": "/a/debug", "../b": "../debug"} {
		if got := newGroup(Record{Version: 2, Path: path}, nil).Beside("debug"); got != want {
			t.Errorf("beside %s is %s, want %s", path, got, want)
		}
	}
}

func TestPropertiesChangeBackToUnset(t *testing.T) {
	old, wanted := properties{{"TasksMax", unset, 0}}, properties{{"TasksMax", uint64(8), 0}, {"MemoryMin", uint64(5), 240}, {"AllowedCPUs", []byte{1}, 244}}
	if got := wanted.without(old).String(); got != "TasksMax=8 MemoryMin=5 AllowedCPUs=[1]" {
		t.Error(got)
	}
	back := old.without(wanted)
	if got := back.String(); got != "TasksMax=unset MemoryMin=0 AllowedCPUs=[]" {
		t.Error(got)
	}
	if got := back.raised(wanted).String(); got != "TasksMax=unset" {
		t.Error(got)
	}
	if !bytes.Equal(back.of("AllowedCPUs").([]byte), nil) || len(wanted.without(wanted)) > 0 {
		t.Error("equal sets differ")
	}
}

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// directory makes plain files that look like a version 2 cgroup, as far as
// limits are concerned.
func directory(t *testing.T, files map[string]string) *Group {
	t.Helper()
	cgroups.TestMode = true // the library otherwise refuses what is no cgroup
	t.Cleanup(func() { cgroups.TestMode = false })
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return newGroup(Record{Version: 2, Path: "/x", Dirs: map[string]string{"": dir}}, nil)
}

// updates are changes of a cgroup that has no limits at first. They are made one
// after the other. Each has the contents of the cgroup's files after the change.
func updates() []change {
	return []change{
		{specs.LinuxResources{Memory: memory(64<<20, 128<<20)}, []file{{"", "memory.max", "67108864"}, {"", "memory.swap.max", "67108864"}, {"", "memory.low", "0"}}},
		{specs.LinuxResources{Memory: memory(96<<20, 0)}, []file{{"", "memory.max", "100663296"}, {"", "memory.swap.max", "33554432"}}},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Swap: ptr[int64](96 << 20)}}, []file{{"", "memory.max", "100663296"}, {"", "memory.swap.max", "0"}}},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](0), Swap: ptr[int64](128 << 20)}}, []file{{"", "memory.max", "100663296"}, {"", "memory.swap.max", "33554432"}}},
		{specs.LinuxResources{Memory: memory(-1, 0)}, []file{{"", "memory.max", "max"}, {"", "memory.swap.max", "max"}}},
		{specs.LinuxResources{CPU: cpuMax(20000, 50000)}, []file{{"", "cpu.max", "20000 50000"}, {"", "cpu.weight", "100"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](30000)}}, []file{{"", "cpu.max", "30000 50000"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Period: ptr[uint64](60000)}}, []file{{"", "cpu.max", "30000 60000"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](0), Shares: ptr[uint64](1024)}}, []file{{"", "cpu.max", "30000 60000"}, {"", "cpu.weight", "100"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](0), Period: ptr[uint64](50000)}}, []file{{"", "cpu.max", "30000 50000"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](20000), Period: ptr[uint64](0)}}, []file{{"", "cpu.max", "20000 50000"}}},
		{specs.LinuxResources{CPU: cpuMax(30000, 60000)}, []file{{"", "cpu.max", "30000 60000"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](-1)}}, []file{{"", "cpu.max", "max 60000"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr[uint64](1024)}}, []file{{"", "cpu.weight", "100"}, {"", "cpu.max", "max 60000"}}},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0-1"}}, []file{{"", "cpuset.cpus", "0-1"}, {"", "cpuset.mems", ""}}},
		{specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](-1)}}, []file{{"", "pids.max", "max"}}},
		{specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}}, []file{{"", "hugetlb.2MB.max", "4194304"}}},
		{specs.LinuxResources{Unified: map[string]string{"memory.high": "1048576"}}, []file{{"", "memory.high", "1048576"}}},
	}
}

// change is an update, and the contents that files must have after it.
type change struct {
	res  specs.LinuxResources
	want []file
}

// afterUpdates is what the last of updates leaves.
var afterUpdates = []file{{"", "memory.max", "max"}, {"", "cpu.max", "max 60000"}, {"", "pids.max", "max"}, {"", "memory.high", "1048576"}}

// requirements.md#C3
func TestUpdateOfTheFilesOfVersion2(t *testing.T) {
	g := directory(t, map[string]string{
		"cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
		"memory.max":         "max\n", "memory.swap.max": "max\n", "memory.low": "0\n", "memory.high": "max\n", "memory.current": "4096\n",
		"cpu.max": "max 100000\n", "cpu.weight": "100\n", "cpu.max.burst": "0\n", "cpu.idle": "0\n",
		"cpuset.cpus": "\n", "cpuset.mems": "\n", "pids.max": "max\n", "io.max": "", "io.weight": "default 100\n",
		"hugetlb.2MB.max": "max\n", "hugetlb.2MB.rsvd.max": "max\n",
	})
	update := func(res specs.LinuxResources) error {
		t.Helper()
		_, err := g.update(&hierarchies{version: 2}, &res)
		return err
	}
	for _, c := range updates() {
		if err := update(c.res); err != nil {
			t.Errorf("%v", err)
		}
		expectFiles(t, g, c.want)
	}
	was := append(afterUpdates, file{"", "io.weight", "default 100"})
	expectFiles(t, g, was)
	for what, res := range map[string]specs.LinuxResources{
		"blockIO.weightDevice": {Pids: &specs.LinuxPids{Limit: ptr[int64](7)}, BlockIO: &specs.LinuxBlockIO{WeightDevice: []specs.LinuxWeightDevice{{Weight: ptr[uint16](10)}}}},
		"memory.swappiness":    {Memory: &specs.LinuxMemory{Swappiness: ptr[uint64](10)}},
		"unified":              {Unified: map[string]string{"../x": "1"}},
		"memory limit":         {CPU: cpuMax(1, 2), Memory: &specs.LinuxMemory{Limit: ptr[int64](1024), CheckBeforeUpdate: ptr(true)}}, // less than is in use
	} {
		if err := update(res); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q in it", err, what)
		}
		expectFiles(t, g, was)
	}
}

// The same updates with the kernel's files. requirements.md#C3
func TestUpdateOnVersion2(t *testing.T) {
	needV2(t)
	g := create(t, "update", &specs.LinuxResources{Devices: denyAll})
	enter(t, g, "exec sleep 60") // there must be memory in use
	for _, c := range updates() {
		if !hasFiles(t, g, c.want) {
			continue
		}
		mustUpdate(t, g, &c.res)
		expectFiles(t, g, c.want)
	}
	expectFiles(t, g, afterUpdates)
	for _, c := range []struct {
		res  specs.LinuxResources
		want string
	}{
		{specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}}, "linux.resources.devices"},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Swappiness: ptr[uint64](10)}}, "memory.swappiness"},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](1024), CheckBeforeUpdate: ptr(true)}}, "memory limit"},
		{specs.LinuxResources{Unified: map[string]string{"memory.strange": "1"}}, "memory.strange"},
		{specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](7)}, CPU: &specs.LinuxCPU{Cpus: "4000"}}, "cpuset.cpus"},
	} {
		if _, err := g.Update(&c.res); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q in it", err, c.want)
		}
		expectFiles(t, g, afterUpdates)
	}
}

// hasFiles reports whether this kernel, with its configuration, has these files.
func hasFiles(t *testing.T, g *Group, files []file) bool {
	t.Helper()
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(g.Dir(""), f.name)); err != nil {
			t.Log("not tried: ", err)
			return false
		}
	}
	return true
}

// requirements.md#C3
func TestUpdateChangesOnlyWhatIsGivenOnVersion2(t *testing.T) {
	needV2(t)
	g := create(t, "update-only", &specs.LinuxResources{
		Devices: denyAll, Memory: memory(64<<20, 0),
		CPU: &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](20000), Period: ptr[uint64](50000)},
	})
	// Another program has set this meanwhile: the update must leave it alone.
	if err := os.WriteFile(filepath.Join(g.Dir("cpu"), "cpu.weight"), []byte("33"), 0); err != nil {
		t.Fatal(err)
	}
	mustUpdate(t, g, &specs.LinuxResources{
		Devices: denyAll, // CRI sends them along
		CPU:     &specs.LinuxCPU{Quota: ptr[int64](30000)}, Pids: &specs.LinuxPids{Limit: ptr[int64](9)},
	})
	expectFiles(t, g, []file{
		{"cpu", "cpu.max", "30000 50000"}, {"cpu", "cpu.weight", "33"}, {"pids", "pids.max", "9"}, {"memory", "memory.max", "67108864"},
	})
	expectAccess(t, g, map[string]bool{"/dev/null": true, "/dev/kmsg": false})
}

// requirements.md#C3
func TestAnUpdateThatFailsLeavesTheOldValuesOnVersion2(t *testing.T) {
	needV2(t)
	device := specs.LinuxThrottleDevice{Rate: 1 << 20}
	device.Major, device.Minor = blockDevice(t)
	g := create(t, "update-fails", &specs.LinuxResources{Memory: memory(64<<20, 128<<20), CPU: cpuMax(20000, 50000)})
	was := []file{
		{"memory", "memory.max", "67108864"}, {"memory", "memory.low", "0"},
		{"cpu", "cpu.max", "20000 50000"}, {"cpu", "cpu.weight", "100"}, {"pids", "pids.max", "max"}, {"blkio", "io.max", ""},
	}
	change := &specs.LinuxResources{
		Memory: memory(512<<20, 1<<30),
		CPU:    &specs.LinuxCPU{Shares: ptr[uint64](99), Quota: ptr[int64](1000), Period: ptr[uint64](10000)},
		Pids:   &specs.LinuxPids{Limit: ptr[int64](9)},
		BlockIO: &specs.LinuxBlockIO{ThrottleReadBpsDevice: []specs.LinuxThrottleDevice{device},
			ThrottleWriteBpsDevice: []specs.LinuxThrottleDevice{{}}}, // there is no device 0:0
	}
	change.Memory.Reservation = ptr[int64](1 << 20)
	if _, err := g.Update(change); err == nil {
		t.Fatal("device 0:0 was found")
	}
	expectFiles(t, g, was)

	// undo restores the old limits even after an Update that has succeeded.
	change.BlockIO.ThrottleWriteBpsDevice = nil
	undo := mustUpdate(t, g, change)
	expectFiles(t, g, []file{{"pids", "pids.max", "9"}, {"memory", "memory.max", "536870912"}, {"cpu", "cpu.max", "1000 10000"}})
	if got := read(t, g, "blkio", "io.max"); !strings.Contains(got, "rbps=1048576") {
		t.Errorf("io.max is %q", got)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	expectFiles(t, g, was)
}

// requirements.md#C2
func TestLimitsAndUpdateOnVersion2(t *testing.T) {
	needV2(t)
	g := create(t, "limits", &specs.LinuxResources{
		Devices: denyAll, Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20), Swap: ptr[int64](96 << 20), Reservation: ptr[int64](32 << 20)},
		CPU:     &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](20000), Period: ptr[uint64](50000), Cpus: "0", Mems: "0"},
		Pids:    &specs.LinuxPids{Limit: ptr[int64](33)},
		Unified: map[string]string{"memory.high": "50331648"},
	})
	was := []file{
		{"", "memory.max", "67108864"}, {"", "memory.low", "33554432"}, {"", "memory.high", "50331648"},
		{"", "cpu.max", "20000 50000"}, {"", "cpuset.cpus", "0"}, {"", "cpuset.mems", "0"}, {"", "pids.max", "33"},
	}
	if _, err := os.Stat(filepath.Join(g.Dir(""), "memory.swap.max")); err == nil {
		was = append(was, file{"", "memory.swap.max", "33554432"})
	}
	expectFiles(t, g, was)
	_, err := g.Update(&specs.LinuxResources{
		Memory: memory(32<<20, 0), Pids: &specs.LinuxPids{Limit: ptr[int64](9)},
		CPU: &specs.LinuxCPU{Quota: ptr[int64](-1), Cpus: "4000"}, Unified: map[string]string{"memory.high": "max"},
	})
	if err == nil {
		t.Fatal("CPU 4000 was found")
	}
	expectFiles(t, g, was)
	mustUpdate(t, g, &specs.LinuxResources{Memory: memory(48<<20, 0), CPU: &specs.LinuxCPU{Quota: ptr[int64](-1)}})
	expectFiles(t, g, []file{{"", "memory.max", "50331648"}, {"", "cpu.max", "max 50000"}, {"", "pids.max", "33"}})
}

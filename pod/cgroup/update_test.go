package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// file is a file of a controller, and the text that it has or should have.
type file struct{ controller, name, text string }

func expectFiles(t *testing.T, g *Group, want []file) {
	t.Helper()
	for _, f := range want {
		b, err := os.ReadFile(filepath.Join(g.Dir(f.controller), f.name))
		if got := strings.TrimSpace(string(b)); err != nil || got != f.text {
			t.Errorf("%s is %q, %v; want %q", f.name, got, err, f.text)
		}
	}
}

func mustUpdate(t *testing.T, g *Group, res *specs.LinuxResources) (undo func() error) {
	t.Helper()
	undo, err := g.Update(res)
	if err != nil {
		t.Fatal(err)
	}
	return undo
}

// cpuMax is a quota of a period.
func cpuMax(quota int64, period uint64) *specs.LinuxCPU {
	return &specs.LinuxCPU{Quota: &quota, Period: &period}
}

func memory(limit, swap int64) *specs.LinuxMemory {
	m := &specs.LinuxMemory{Limit: &limit}
	if swap != 0 {
		m.Swap = &swap
	}
	return m
}

// requirements.md#C3
func TestUpdateChangesOnlyWhatIsGivenOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "update", &specs.LinuxResources{
		Devices: denyAll, Memory: memory(64<<20, 0),
		CPU: &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](20000), Period: ptr[uint64](50000)},
	})
	before := read(t, g, "devices", "devices.list")
	// Another program has set this meanwhile: the update must leave it alone.
	if err := os.WriteFile(filepath.Join(g.Dir("cpu"), "cpu.shares"), []byte("333"), 0); err != nil {
		t.Fatal(err)
	}
	mustUpdate(t, g, &specs.LinuxResources{
		Devices: denyAll, // CRI sends them along
		CPU:     &specs.LinuxCPU{Quota: ptr[int64](30000)}, Pids: &specs.LinuxPids{Limit: ptr[int64](9)},
	})
	expectFiles(t, g, []file{
		{"cpu", "cpu.cfs_quota_us", "30000"}, {"cpu", "cpu.cfs_period_us", "50000"}, {"cpu", "cpu.shares", "333"},
		{"pids", "pids.max", "9"}, {"memory", "memory.limit_in_bytes", "67108864"}, {"devices", "devices.list", before},
	})
}

// requirements.md#C3
func TestMemoryAndSwapInTheOrderThatTheKernelTakesOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "update-memory", &specs.LinuxResources{Memory: memory(64<<20, 128<<20)})
	if _, err := os.Stat(filepath.Join(g.Dir("memory"), "memory.memsw.limit_in_bytes")); err != nil {
		t.Skip("swap is not accounted: ", err)
	}
	for _, c := range []struct {
		memory      *specs.LinuxMemory
		limit, swap string
	}{
		{memory(256<<20, 512<<20), "268435456", "536870912"}, // both above the old ones
		{memory(32<<20, 48<<20), "33554432", "50331648"},     // both below
		{memory(32<<20, 32<<20), "33554432", "33554432"},     // no swap
		{&specs.LinuxMemory{Swap: ptr[int64](64 << 20)}, "33554432", "67108864"},
		{&specs.LinuxMemory{Limit: ptr[int64](48 << 20)}, "50331648", "67108864"},
		{memory(-1, 0), "9223372036854771712", "9223372036854771712"}, // takes the swap along
		{memory(64<<20, -1), "67108864", "9223372036854771712"},
		{memory(64<<20, 128<<20), "67108864", "134217728"},
		{memory(-1, -1), "9223372036854771712", "9223372036854771712"},
	} {
		mustUpdate(t, g, &specs.LinuxResources{Memory: c.memory})
		expectFiles(t, g, []file{{"memory", "memory.limit_in_bytes", c.limit}, {"memory", "memory.memsw.limit_in_bytes", c.swap}})
	}
}

// requirements.md#C2
func TestTheKernelsTCPBuffersAreLimitedOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "kernel-tcp", &specs.LinuxResources{Memory: &specs.LinuxMemory{KernelTCP: ptr[int64](32 << 20)}})
	if _, err := os.Stat(filepath.Join(g.Dir("memory"), tcpFile)); err != nil {
		t.Skip("this kernel has no limit for them: ", err)
	}
	expectFiles(t, g, []file{{"memory", tcpFile, "33554432"}})
	mustUpdate(t, g, &specs.LinuxResources{Memory: &specs.LinuxMemory{KernelTCP: ptr[int64](16 << 20)}})
	expectFiles(t, g, []file{{"memory", tcpFile, "16777216"}})
	mustUpdate(t, g, &specs.LinuxResources{Memory: memory(64<<20, 0)})
	expectFiles(t, g, []file{{"memory", tcpFile, "16777216"}})
	// If the kernel refuses a value, the old one stays.
	if _, err := g.Update(&specs.LinuxResources{
		Memory: &specs.LinuxMemory{KernelTCP: ptr[int64](8 << 20)}, CPU: &specs.LinuxCPU{Cpus: "4096"},
	}); err == nil {
		t.Error("a CPU that does not exist was accepted")
	}
	expectFiles(t, g, []file{{"memory", tcpFile, "16777216"}})
	mustUpdate(t, g, &specs.LinuxResources{Memory: &specs.LinuxMemory{KernelTCP: ptr[int64](-1)}})
	expectFiles(t, g, []file{{"memory", tcpFile, "9223372036854771712"}})
}

const tcpFile = "memory.kmem.tcp.limit_in_bytes"

// requirements.md#C3
func TestAnUpdateThatFailsLeavesTheOldValuesOnVersion1(t *testing.T) {
	needV1(t)
	device := specs.LinuxThrottleDevice{Rate: 1 << 20}
	device.Major, device.Minor = blockDevice(t)
	g := create(t, "update-fails", &specs.LinuxResources{Memory: memory(64<<20, 128<<20), CPU: cpuMax(20000, 50000)})
	was := []file{
		{"memory", "memory.limit_in_bytes", "67108864"}, {"memory", "memory.memsw.limit_in_bytes", "134217728"},
		{"memory", "memory.swappiness", read(t, g, "memory", "memory.swappiness")},
		{"memory", "memory.soft_limit_in_bytes", "9223372036854771712"},
		{"cpu", "cpu.cfs_quota_us", "20000"}, {"cpu", "cpu.cfs_period_us", "50000"}, {"cpu", "cpu.shares", "1024"},
		{"pids", "pids.max", "max"}, {"blkio", "blkio.throttle.read_bps_device", ""},
	}
	change := &specs.LinuxResources{
		Memory: memory(512<<20, 1<<30),
		CPU:    &specs.LinuxCPU{Shares: ptr[uint64](99), Quota: ptr[int64](1000), Period: ptr[uint64](10000)},
		Pids:   &specs.LinuxPids{Limit: ptr[int64](9)},
		BlockIO: &specs.LinuxBlockIO{ThrottleReadBpsDevice: []specs.LinuxThrottleDevice{device},
			ThrottleWriteBpsDevice: []specs.LinuxThrottleDevice{{}}}, // there is no device 0:0
	}
	change.Memory.Swappiness, change.Memory.Reservation = ptr[uint64](7), ptr[int64](1<<20)
	if _, err := g.Update(change); err == nil {
		t.Fatal("device 0:0 was found")
	}
	expectFiles(t, g, was)

	// undo restores the old limits even after an Update that has succeeded.
	change.BlockIO.ThrottleWriteBpsDevice = nil
	undo := mustUpdate(t, g, change)
	expectFiles(t, g, []file{{"pids", "pids.max", "9"}, {"cpu", "cpu.shares", "99"}, {"memory", "memory.memsw.limit_in_bytes", "1073741824"}})
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	expectFiles(t, g, was)
	mustUpdate(t, g, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](96 << 20)}})
	expectFiles(t, g, []file{{"memory", "memory.limit_in_bytes", "100663296"}, {"memory", "memory.memsw.limit_in_bytes", "134217728"}})
}

// blockDevice finds a block device that can be limited.
func blockDevice(t *testing.T) (major, minor int64) {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/*/dev")
	if err != nil || len(devices) == 0 {
		t.Skip("there is no block device")
	}
	b, err := os.ReadFile(devices[0])
	if err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(strings.TrimSpace(string(b)), ":")
	return number(t, before), number(t, after)
}

func number(t *testing.T, s string) (n int64) {
	t.Helper()
	for _, c := range s {
		n = n*10 + int64(c-'0')
	}
	return n
}

// requirements.md#C3
func TestTheOOMKillerCanBeDisabledAndEnabledOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "update-oom", nil)
	for _, disable := range []bool{true, false} {
		mustUpdate(t, g, &specs.LinuxResources{Memory: &specs.LinuxMemory{DisableOOMKiller: &disable}})
		if got := readUint(t, g, "memory.oom_control", "oom_kill_disable"); (got == 1) != disable {
			t.Errorf("oom_kill_disable is %d after %v", got, disable)
		}
	}
}

// requirements.md#C3
func TestWhatCannotBeChangedIsRefusedByNameOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "update-refused", &specs.LinuxResources{Devices: denyAll, Memory: memory(64<<20, 0)})
	for _, c := range []struct {
		res  specs.LinuxResources
		want string
	}{
		{specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}}, "linux.resources.devices"},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{Swap: ptr[int64](1 << 20)}}, "linux.resources.memory.swap"},
		{specs.LinuxResources{Memory: &specs.LinuxMemory{UseHierarchy: ptr(false)}}, "useHierarchy"},
		{specs.LinuxResources{Unified: map[string]string{"memory.high": "1"}}, "linux.resources.unified"},
		{specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}}}, "hugetlb"},
		{specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4000"}}, "cpuset.cpus"},
	} {
		if _, err := g.Update(&c.res); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q in it", err, c.want)
		}
	}
	expectFiles(t, g, []file{{"memory", "memory.limit_in_bytes", "67108864"}})
}

func TestADeviceThatHadNoLimitHasNoneAfterTheRestore(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "io.max")
	for _, c := range []struct{ old, now, want string }{
		{"", "8:0 rbps=1 wbps=max riops=max wiops=max\n", "8:0 rbps=max wbps=max riops=max wiops=max\n"},
		{"8:0 rbps=2 wbps=max\n", "8:0 rbps=1 wbps=max\n", "8:0 rbps=2 wbps=max\n"},
		{"8:0 rbps=2 wbps=max\n", "8:0 rbps=2 wbps=max\n", "8:0 rbps=2 wbps=max\n"},
	} {
		if err := os.WriteFile(path, []byte(c.old), 0o600); err != nil {
			t.Fatal(err)
		}
		files := backup{}
		if err := files.add(filepath.Join(dir, "io.*"), knobs[2]["blkio"][0].none); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.now), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = files[path].restore(path) // a file, unlike a cgroup's, keeps the last line written
		if b, err := os.ReadFile(path); err != nil || string(b) != c.want {
			t.Errorf("%q, then %q: restored to %q, %v", c.old, c.now, b, err)
		}
	}
}

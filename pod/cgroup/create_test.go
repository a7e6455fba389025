package cgroup

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// denyAll is what containerd's default spec asks for.
var denyAll = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}

func TestCreateMakesEveryHierarchyAndRemoveLeavesNone(t *testing.T) {
	h := needHost(t)
	g := create(t, "every", &specs.LinuxResources{Devices: denyAll})
	if len(g.ABI().Dirs) != len(distinct(h.roots)) || g.ABI().Version != h.version {
		t.Errorf("the stage1 is told %+v of hierarchies %v", g.ABI(), h.roots)
	}
	for _, dir := range g.ABI().Dirs {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range g.ABI().Dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestAUmaskTakesNothingFromTheModeOfCgroups(t *testing.T) {
	needHost(t)
	defer unix.Umask(unix.Umask(0o077))
	for _, dir := range create(t, "umask", nil).ABI().Dirs {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != dirMode {
			t.Errorf("%s has the mode %v (%v)", dir, st.Mode(), err)
		}
	}
}

// requirements.md#C2
func TestLimitsOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "limits", &specs.LinuxResources{
		Devices: append(denyAll, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr[int64](10), Minor: ptr[int64](229), Access: "rw"}),
		Memory:  &specs.LinuxMemory{Limit: ptr[int64](64 << 20), Reservation: ptr[int64](32 << 20)},
		CPU:     &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](20000), Period: ptr[uint64](50000), Cpus: "0", Mems: "0"},
		Pids:    &specs.LinuxPids{Limit: ptr[int64](33)},
	})
	for _, tc := range []struct{ controller, file, want string }{
		{"memory", "memory.limit_in_bytes", "67108864"},
		{"memory", "memory.soft_limit_in_bytes", "33554432"},
		{"cpu", "cpu.shares", "512"},
		{"cpu", "cpu.cfs_quota_us", "20000"},
		{"cpu", "cpu.cfs_period_us", "50000"},
		{"cpuset", "cpuset.cpus", "0"},
		{"pids", "pids.max", "33"},
	} {
		if got := read(t, g, tc.controller, tc.file); got != tc.want {
			t.Errorf("%s is %s, want %s", tc.file, got, tc.want)
		}
	}
	rules := "\n" + read(t, g, "devices", "devices.list") + "\n"
	for _, want := range []string{"c 10:229 rw", "c 1:3 rwm", "c 136:* rwm", "b *:* m"} {
		if !strings.Contains(rules, "\n"+want+"\n") {
			t.Errorf("devices.list lacks %q:%s", want, rules)
		}
	}
	if strings.Contains(rules, "a *:*") || strings.Contains(rules, "b *:* r") {
		t.Errorf("devices.list allows too much:%s", rules)
	}
}

func TestPrivilegedMayUseEveryDeviceOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "privileged", &specs.LinuxResources{Devices: append(denyAll, specs.LinuxDeviceCgroup{Allow: true, Access: "rwm"})})
	if got := read(t, g, "devices", "devices.list"); got != "a *:* rwm" {
		t.Errorf("devices.list is %q", got)
	}
}

// The type may be left out, and means both types. Numbers and access still count.
func TestARuleForBothTypesOfDevicesAllowsWhatItSays(t *testing.T) {
	needV1(t)
	g := create(t, "both", &specs.LinuxResources{Devices: append(denyAll,
		specs.LinuxDeviceCgroup{Allow: true, Major: ptr[int64](10), Minor: ptr[int64](229), Access: "rw"},
		specs.LinuxDeviceCgroup{Allow: true, Type: "a", Major: ptr[int64](11), Access: "rwm"},
		specs.LinuxDeviceCgroup{Type: "a", Major: ptr[int64](11), Access: "w"},
	)})
	rules := "\n" + read(t, g, "devices", "devices.list") + "\n"
	for _, want := range []string{"c 10:229 rw", "b 10:229 rw", "c 11:* rm", "b 11:* rm", "c 1:3 rwm"} {
		if !strings.Contains(rules, "\n"+want+"\n") {
			t.Errorf("devices.list lacks %q:%s", want, rules)
		}
	}
	if strings.Contains(rules, "a *:*") {
		t.Errorf("devices.list allows too much:%s", rules)
	}
}

func TestWithoutResourcesDevicesAreDeniedOnVersion1(t *testing.T) {
	needV1(t)
	g := create(t, "nothing", nil)
	cmd := enter(t, g, "exec sleep 60")
	_ = cmd
	if rules := read(t, g, "devices", "devices.list"); strings.Contains(rules, "a *:*") {
		t.Errorf("devices.list is %q", rules)
	}
}

func TestLimitsThatCannotBeEnforcedAreRefusedByName(t *testing.T) {
	v1 := &hierarchies{version: 1, roots: map[string]string{"devices": "/d", "memory": "/m"}}
	v2 := &hierarchies{version: 2, roots: map[string]string{"": "/u"}}
	for _, tc := range []struct {
		h    *hierarchies
		res  specs.LinuxResources
		want string // "" means accepted
	}{
		{v1, specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}}}, "hugetlb"},
		{v1, specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](1)}}, "pids"},
		{v1, specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0"}}, "cpuset"},
		{v1, specs.LinuxResources{Network: &specs.LinuxNetwork{ClassID: ptr[uint32](1)}}, "net_cls"},
		{v1, specs.LinuxResources{Rdma: map[string]specs.LinuxRdma{"x": {}}}, "rdma"},
		{v1, specs.LinuxResources{Unified: map[string]string{"memory.high": "1"}}, "unified"},
		{v1, specs.LinuxResources{Memory: &specs.LinuxMemory{UseHierarchy: ptr(false)}}, "useHierarchy"},
		{v1, specs.LinuxResources{Memory: &specs.LinuxMemory{Swappiness: ptr[uint64](1)}, Devices: denyAll}, ""},
		{v1, specs.LinuxResources{CPU: &specs.LinuxCPU{}, Pids: &specs.LinuxPids{}, Unified: map[string]string{}}, ""},
		{v2, specs.LinuxResources{Memory: &specs.LinuxMemory{Swappiness: ptr[uint64](1)}}, "memory.swappiness"},
		{v2, specs.LinuxResources{Memory: &specs.LinuxMemory{KernelTCP: ptr[int64](1 << 20)}}, "memory.kernelTCP"},
		{v2, specs.LinuxResources{Memory: &specs.LinuxMemory{DisableOOMKiller: ptr(true)}}, "memory.disableOOMKiller"},
		{v2, specs.LinuxResources{Memory: &specs.LinuxMemory{DisableOOMKiller: ptr(false)}}, ""},
		{v2, specs.LinuxResources{CPU: &specs.LinuxCPU{RealtimePeriod: ptr[uint64](1)}}, "cpu.realtimePeriod"},
		{v2, specs.LinuxResources{BlockIO: &specs.LinuxBlockIO{WeightDevice: []specs.LinuxWeightDevice{{LeafWeight: ptr[uint16](1)}}}}, "blockIO.leafWeight"},
		{v2, specs.LinuxResources{Network: &specs.LinuxNetwork{Priorities: []specs.LinuxInterfacePriority{{}}}}, "network.priorities"},
		{v2, specs.LinuxResources{Unified: map[string]string{"memory.high": "1"}}, ""},
	} {
		err := tc.h.check(&tc.res)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("version %d, %+v: %v; want %q", tc.h.version, tc.res, err, tc.want)
		}
	}
}

func TestBadDeviceRulesAreRefused(t *testing.T) {
	for _, d := range []specs.LinuxDeviceCgroup{{Type: "x", Access: "r"}, {Type: "c"}, {Type: "c", Access: "rx"}} {
		if _, err := convert(&specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{d}}, 1); err == nil || !strings.Contains(err.Error(), "devices[0]") {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

func TestAFailedCreateLeavesNothing(t *testing.T) {
	h := needHost(t)
	_, err := Maker{}.Create(Path{Spec: base + "/failed"}, &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4000"}})
	if err == nil {
		t.Fatal("CPU 4000 was found")
	}
	for _, dir := range h.places(base + "/failed") {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
}

func TestAStaleCgroupIsMadeAnew(t *testing.T) {
	needMemory(t)
	old := create(t, "stale", &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](5)}})
	// The owner of the cgroup ends: the lock is released, the directories stay, one with
	// a child.
	if err := os.Mkdir(filepath.Join(old.Dir("memory"), "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	_ = old.lock.Close()
	g := create(t, "stale", nil)
	if g.Path() != old.Path() {
		t.Errorf("made at %s, want %s", g.Path(), old.Path())
	}
	if got := read(t, g, "pids", "pids.max"); got != "max" {
		t.Errorf("pids.max is %s: a limit of the old one", got)
	}
	if _, err := os.Stat(filepath.Join(g.Dir("memory"), "sub")); err == nil {
		t.Error("a child of the old one is there")
	}
}

// containerd writes /NAMESPACE/ID by itself, so no client has chosen that path.
func TestTwoDaemonsWithOneNameGetCgroupsApart(t *testing.T) {
	needHost(t)
	path := Path{Namespace: strings.TrimPrefix(base, "/"), ID: "foo"}
	first := createAt(t, path) // no process has entered yet
	path.Spec = base + "/foo"
	second := createAt(t, path)
	if first.Path() == second.Path() {
		t.Fatal("they share one")
	}
	_ = first.lock.Close() // the daemon's shim dies, its container goes on
	enter(t, first, "exec sleep 60")
	third := createAt(t, path)
	if third.Path() == first.Path() || third.Path() == second.Path() {
		t.Errorf("%s is shared", third.Path())
	}
	if !strings.HasPrefix(third.Path(), base+"/foo-") {
		t.Errorf("its path is %s", third.Path())
	}
	if from, moved := path.Moved(third); !moved || from != base+"/foo" {
		t.Errorf("it was moved: %v, from %q", moved, from)
	}
	if from, moved := path.Moved(first); moved {
		t.Errorf("the first one was moved from %q", from)
	}
}

func TestRecordIsEnoughToKillAndRemove(t *testing.T) {
	needHost(t)
	g := create(t, "record", nil)
	enter(t, g, "exec sleep 60")
	b, err := json.Marshal(g.Record())
	if err != nil {
		t.Fatal(err)
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	other, err := FromRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := other.Pids(); err != nil || len(pids) != 1 {
		t.Errorf("pids %v, %v", pids, err)
	}
	destroy(t, other)
	if pids, err := other.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("pids %v, %v after the removal", pids, err)
	}
}

func TestRecordsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, r := range []Record{
		{},
		{Version: 3, Dirs: map[string]string{"": "/x", "devices": "/x"}},
		{Version: 1, Dirs: map[string]string{"memory": "/x"}},
		{Version: 2, Dirs: map[string]string{"": "x"}},
		{Version: 2, Dirs: map[string]string{"": "/x/../y"}},
		{Version: 1, Path: "/x", Dirs: map[string]string{"devices": "/sys/fs/cgroup/devices/y"}},
		{Version: 1, Path: "/x/../y", Dirs: map[string]string{"devices": "/sys/fs/cgroup/devices/x/../y"}},
		{Version: 1, Path: "/home", Dirs: map[string]string{"devices": "/home"}},
		{Version: 2, Path: "/home", Dirs: map[string]string{"": "/home"}},
		{Version: 2, Path: "/self", Dirs: map[string]string{"": "/proc/self"}},
	} {
		if _, err := FromRecord(r); err == nil {
			t.Errorf("accepted %+v", r)
		}
	}
}

// All processes in a record's cgroup are killed. So the record must not name a hierarchy's
// root, nor a cgroup that contains this process or the machine's first process.
func TestRecordsOfTheMachinesOwnCgroupsAreRefused(t *testing.T) {
	h := needHost(t)
	g := create(t, "holds-a-shim", nil)
	for name, path := range map[string]string{"the root of a hierarchy": "/", "an empty path": "", "above a hierarchy": "/.."} {
		if _, err := FromRecord(Record{Version: h.version, Path: path, Dirs: h.dirs(path)}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	root := h.roots[primary(h.version)]
	if _, err := FromRecord(Record{Version: h.version, Path: "/" + filepath.Base(root), Dirs: map[string]string{primary(h.version): root}}); err == nil {
		t.Error("a hierarchy as its own cgroup: accepted")
	}
	// A process that is in the cgroup, one level down, asks for itself.
	dirs, tasks := below(t, g, "memory")
	record, err := json.Marshal(g.Record())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		join := "echo 0 >" + filepath.Join(dir, tasks) + "; exec \"$0\" -test.run='^TestARecordOfThisProcessesCgroup$' -test.v"
		cmd := exec.Command("/bin/sh", "-c", join, self)
		cmd.Env = append(os.Environ(), "CGROUP_RECORD="+string(record))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "process self is in it") {
			t.Errorf("from %s: %v, %s", dir, err, out)
		}
	}
}

func TestARecordOfThisProcessesCgroup(t *testing.T) {
	text := os.Getenv("CGROUP_RECORD")
	if text == "" {
		t.Skip("it is the process of another test")
	}
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	_, err := FromRecord(r)
	t.Log(err)
}

func BenchmarkCreateAndRemove(b *testing.B) {
	needHost(b)
	res := &specs.LinuxResources{Devices: denyAll, CPU: &specs.LinuxCPU{Shares: ptr[uint64](1024)}}
	for b.Loop() {
		g, err := Maker{}.Create(Path{Spec: base + "/bench"}, res)
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Remove(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func needHybrid(t *testing.T) *hierarchies {
	t.Helper()
	h := needHost(t)
	if h.unified == "" {
		t.Skip("the host is not a hybrid one")
	}
	return h
}

// Container root without a seccomp profile can mount the version 2 hierarchy, and would see all of
// it from the root cgroup.
func TestACgroupOnAHybridHostIsInBothVersions(t *testing.T) {
	h := needHybrid(t)
	g := create(t, "hybrid", nil)
	want := filepath.Join(h.unified, g.Path())
	if a := g.ABI(); a.Unified != want || slices.Contains(a.Dirs, want) || len(a.All()) != len(a.Dirs)+1 {
		t.Errorf("a stage1 is told %+v, want %s", a, want)
	}
	dir, tasks, err := g.ABI().Ways()
	if err != nil || dir != want || len(tasks) != len(distinct(h.roots)) {
		t.Errorf("a process enters it by %q and %q, %v", dir, tasks, err)
	}
	if err := os.MkdirAll(filepath.Join(want, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	again, err := FromRecord(g.Record())
	if err == nil {
		err = again.Remove(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(want); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", want, err)
	}
	for _, unified := range []string{h.unified, "/home" + g.Path(), h.roots["devices"] + g.Path()} {
		bad := g.Record()
		bad.Unified = unified
		if _, err := FromRecord(bad); err == nil {
			t.Errorf("a record may name %s", unified)
		}
	}
}

// A container's processes are killed also if they are only in the version 2 hierarchy.
func TestAProcessThatIsOnlyInTheUnifiedHierarchyIsKilled(t *testing.T) {
	needHybrid(t)
	g := create(t, "hybrid-kill", nil)
	p := enterDirs(t, []string{g.Record().Unified}, "cgroup.procs", "exec sleep 60")
	if err := os.WriteFile(filepath.Join(g.Record().Unified, "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := g.End(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	<-p.ended
}

// The processes of images of an earlier release enter version 1 only.
func TestAProcessThatHasNotEnteredTheUnifiedHierarchyIsMovedThere(t *testing.T) {
	needHybrid(t)
	g := create(t, "hybrid-moved", nil)
	p := enterDirs(t, g.ABI().Dirs, "tasks", "exec sleep 60")
	if err := g.Contains(p.Process.Pid); err != nil {
		t.Error(err)
	}
	if of, err := Of(p.Process.Pid); err != nil || of[unifiedName] != g.Path() {
		t.Errorf("it is in %v, %v; want %s", of, err, g.Path())
	}
	outside := exec.Command("sleep", "60")
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outside.Process.Kill(); _ = outside.Wait() }()
	if err := g.Contains(outside.Process.Pid); err == nil || !strings.Contains(err.Error(), "is outside of its cgroup") {
		t.Errorf("a process that is in none: %v", err)
	}
	if err := g.End(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
	<-p.ended
}

// A cgroup of an earlier release is in the version 2 hierarchy only if an OCI runtime has made it, and
// another container may be at its path there.
func TestTheRecordOfAnEarlierReleaseLeavesOthersInTheUnifiedHierarchy(t *testing.T) {
	needHybrid(t)
	g := create(t, "hybrid-old", nil)
	old := g.Record()
	old.UnifiedMade = false
	earlier, err := FromRecord(old)
	if err != nil {
		t.Fatal(err)
	}
	if a := earlier.ABI(); a.Unified != "" {
		t.Errorf("a process of it enters %s", a.Unified)
	}
	other := enterDirs(t, []string{old.Unified}, "cgroup.procs", "exec sleep 60")
	if err := earlier.Kill(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(other.Process.Pid, 0); err != nil {
		t.Errorf("the other process: %v", err)
	}
	_ = other.Process.Kill()
	<-other.ended
	if err := earlier.End(within(t, time.Minute)); err != nil {
		t.Error(err)
	}
	for _, dir := range append(distinct(old.Dirs), old.Unified) {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

func TestTheHierarchiesAreLookedForAgainWhenTheKernelHasOthers(t *testing.T) {
	h := needHost(t)
	detected.mu.Lock()
	detected.names, detected.hierarchies = []string{"devices"}, &hierarchies{version: 1, roots: map[string]string{"devices": "/former"}}
	detected.mu.Unlock()
	again, err := host()
	if err != nil || !maps.Equal(again.roots, h.roots) || again.unified != h.unified {
		t.Errorf("%+v, %v; want %+v", again, err, h)
	}
	if same, err := host(); err != nil || same != again {
		t.Errorf("the same hierarchies are looked for again: %v", err)
	}
}

// A containerd in a container often has /sys/fs/cgroup read-only, or only a part of it.
func TestTheErrorOfAReadOnlyHierarchySaysWhatToDo(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("none", root, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, 0) })
	for _, dir := range []string{"a", "a/b"} {
		if _, err := makeDir(filepath.Join(root, dir)); err == nil || !strings.Contains(err.Error(), "read-only file system: ") || !strings.Contains(err.Error(), "mount this one writable for containerd") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

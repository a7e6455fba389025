package cgroup

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// inDaemon returns the cgroups that a containerd in a cgroup of the test would have read from
// /proc/self/cgroup. On version 2 the containerd is in a child of that cgroup.
func inDaemon(h *hierarchies, name string) map[string]string {
	daemon := map[string]string{}
	for controller := range h.roots {
		daemon[controller] = base + "/" + name
		if h.version == 2 {
			daemon[controller] += "/containerd"
		}
	}
	return daemon
}

// removeLater removes parents of a test's cgroups, which are left when these were removed.
func removeLater(t *testing.T, names ...string) {
	h := needHost(t)
	t.Cleanup(func() {
		for _, name := range names {
			for _, dir := range h.places(base + "/" + name) {
				if err := rmdir(dir); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// A relative path is below containerd's own cgroup on version 1, and below that cgroup's parent
// on version 2, as with runc. requirements.md#C1
func TestARelativePathIsBelowContainerdsOwnCgroup(t *testing.T) {
	h := needHost(t)
	removeLater(t, "daemon/a", "daemon")
	for _, tc := range []struct{ spec, want string }{
		{"a/b", base + "/daemon/a/b"},
		{"../../../a/../b", base + "/daemon/b"},
	} {
		g := createAt(t, Path{Spec: tc.spec, Namespace: "ns", ID: "id", Daemon: inDaemon(h, "daemon")})
		if g.Path() != tc.want {
			t.Errorf("%q: made at %s, want %s", tc.spec, g.Path(), tc.want)
		}
		for controller, root := range h.roots {
			if want := filepath.Join(root, tc.want); g.Dir(controller) != want {
				t.Errorf("%q: %s has %s, want %s", tc.spec, controller, g.Dir(controller), want)
			}
		}
	}
}

// The limits of the cgroup above apply to a container with a relative path, too.
func TestTheLimitsOfTheParentHoldInARelativePath(t *testing.T) {
	h := needMemory(t)
	removeLater(t, "daemon")
	parent, err := Maker{}.Create(Path{Spec: base + "/daemon/limited"}, &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](1)}})
	if err != nil {
		t.Fatal(err)
	}
	_ = parent.lock.Close() // it is no container's
	t.Cleanup(func() { destroy(t, parent) })
	g := createAt(t, Path{Spec: "limited/x", Daemon: inDaemon(h, "daemon")})
	select {
	case <-enter(t, g, "(sleep 60) & wait; sleep 60").ended: // it cannot fork
	case <-time.After(wait.Patience):
		t.Error("the limit of the cgroup above does not hold")
	}
}

// The limits of runtime-tools' linux_cgroups_relative_cpus, _devices, _memory and _pids.
func TestTheLimitsOfAContainerAreInItsRelativeCgroup(t *testing.T) {
	h := needMemory(t)
	removeLater(t, "daemon")
	g, err := Maker{}.Create(Path{Spec: "own", Daemon: inDaemon(h, "daemon")}, &specs.LinuxResources{
		Devices: append(denyAll, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr[int64](10), Minor: ptr[int64](229), Access: "rw"}),
		Memory:  &specs.LinuxMemory{Limit: ptr[int64](64 << 20)},
		CPU:     &specs.LinuxCPU{Quota: ptr[int64](20000), Period: ptr[uint64](50000), Cpus: "0"},
		Pids:    &specs.LinuxPids{Limit: ptr[int64](33)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, g) })
	files := map[string]string{"memory/memory.limit_in_bytes": "67108864", "cpu/cpu.cfs_quota_us": "20000", "cpuset/cpuset.cpus": "0", "pids/pids.max": "33"}
	if h.version == 2 {
		files = map[string]string{"/memory.max": "67108864", "/cpu.max": "20000 50000", "/cpuset.cpus": "0", "/pids.max": "33"}
	}
	for name, want := range files {
		controller, file, _ := strings.Cut(name, "/")
		text, err := os.ReadFile(filepath.Join(h.roots[controller], base, "daemon/own", file))
		if got := strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %s", name, got, err, want)
		}
	}
	if h.version == 2 {
		return // a program of the kernel's
	}
	rules, err := os.ReadFile(filepath.Join(h.roots["devices"], base, "daemon/own/devices.list"))
	if err != nil || !strings.Contains(string(rules), "c 10:229 rw\n") || strings.Contains(string(rules), "a *:*") {
		t.Errorf("devices.list is %q, %v", rules, err)
	}
}

// With cgroup version 1 and systemd, containerd is in a cgroup of its own in some hierarchies,
// and in the root of others.
func TestHierarchiesInWhichContainerdIsInOtherCgroupsOnVersion1(t *testing.T) {
	h := needV1(t)
	own, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.locate("a/b", map[string]string{"devices": "/"})
	if err == nil || !strings.Contains(err.Error(), "is not known for the controller") {
		t.Errorf("without the cgroups of all controllers: %+v, %v", r, err)
	}
	daemon := maps.Clone(own)
	for controller := range h.roots {
		daemon[controller] = "/"
	}
	daemon["pids"] = base + "/daemon"
	r, err = h.locate("a/b", daemon)
	if err != nil {
		t.Fatal(err)
	}
	if r.Path != "a/b" || r.Dirs["pids"] != h.roots["pids"]+base+"/daemon/a/b" || r.Dirs["devices"] != h.roots["devices"]+"/a/b" {
		t.Errorf("%+v", r)
	}
	if h.unified != "" && r.Unified != h.unified+"/a/b" {
		t.Errorf("an OCI runtime is expected to make %s", r.Unified)
	}
	if err := r.reachable(own); err != nil && own["pids"] != daemon["pids"] {
		t.Errorf("from the daemon's own cgroups: %v", err)
	}
	if err := r.reachable(daemon); err == nil || !strings.Contains(err.Error(), "use an absolute path, or no ShimCgroup") {
		t.Errorf("from another cgroup: %v", err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Record
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if _, err := FromRecord(again); err != nil {
		t.Errorf("the record is refused: %v", err)
	}
	for what, change := range map[string]func(r *Record){
		"a directory of another path": func(r *Record) { r.Dirs["devices"] = h.roots["devices"] + "/a/c" },
		"a path that leads up":        func(r *Record) { r.Path, r.Dirs = "..", map[string]string{"devices": h.roots["devices"] + "/x/.."} },
		"the root of a hierarchy": func(r *Record) {
			r.Path, r.Dirs = "devices", map[string]string{"devices": h.roots["devices"]}
		},
		"no path": func(r *Record) { r.Path, r.Dirs = "", map[string]string{"devices": h.roots["devices"] + "/"} },
	} {
		bad := r
		bad.Dirs = maps.Clone(r.Dirs)
		change(&bad)
		if _, err := FromRecord(bad); err == nil {
			t.Errorf("%s: accepted %+v", what, bad)
		}
	}
}

// crun takes a relative path for an absolute one.
func TestAStage1ThatMissesARelativeCgroupIsNoticedOnVersion1(t *testing.T) {
	h := needV1(t)
	removeLater(t, "daemon")
	daemon := map[string]string{}
	for controller := range h.roots {
		daemon[controller] = base
	}
	daemon["pids"] = base + "/daemon"
	r, err := h.locate("missed", daemon)
	if err != nil {
		t.Fatal(err)
	}
	g, err := h.claim(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, g) })
	if err := g.setUp(nil); err != nil {
		t.Fatal(err)
	}
	if err := g.Contains(enter(t, g, "exec sleep 60").Process.Pid); err != nil {
		t.Error(err)
	}
	some := slices.DeleteFunc(slices.Clone(g.dirs), func(dir string) bool { return dir == g.Dir("pids") })
	missed := enterDirs(t, some, "tasks", "exec sleep 60").Process.Pid
	if err := g.Contains(missed); err == nil || !strings.Contains(err.Error(), g.Dir("pids")) {
		t.Errorf("a process that is not in %s: %v", g.Dir("pids"), err)
	}
}

func TestARelativePathIsBesideContainerdsOwnCgroupOnVersion2(t *testing.T) {
	h := &hierarchies{version: 2, roots: map[string]string{"": "/sys/fs/cgroup"}}
	for own, want := range map[string]string{"/system.slice/containerd.service": "/system.slice/a/b", "/init.scope": "/a/b", "/": "/a/b"} {
		if r, err := h.locate("a/b", map[string]string{"": own}); err != nil || r.Path != want || r.Dir() != "/sys/fs/cgroup"+want {
			t.Errorf("of a containerd in %s: %+v, %v; want %s", own, r, err, want)
		}
	}
}

func TestAContainerdOutsideOfTheMountedCgroupsHasNoRelativePaths(t *testing.T) {
	for _, h := range []*hierarchies{{version: 1}, {version: 2}} {
		if base, err := h.base("", map[string]string{"": "/../other"}); err == nil || !strings.Contains(err.Error(), "out of the cgroup namespace") {
			t.Errorf("version %d: %q, %v", h.version, base, err)
		}
	}
}

func TestOwnIsWhereThisProcessIs(t *testing.T) {
	h := needHost(t)
	own, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := os.ReadFile(filepath.Join(h.roots[primary(h.version)], own[primary(h.version)], "cgroup.procs"))
	if err != nil {
		t.Skip("this process sees other cgroups: ", err)
	}
	self := "\n" + itoa(os.Getpid()) + "\n"
	if !strings.Contains("\n"+string(pids), self) {
		t.Errorf("%v does not have process %d", own, os.Getpid())
	}
}

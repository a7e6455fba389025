package disk

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// dir returns the directory of the life's cgroup in the hierarchy in which it is locked.
func (l life) dir(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/devices", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, l.ID)); err == nil {
			return filepath.Join(root, l.ID)
		}
	}
	t.Fatal("it has no cgroup")
	return ""
}

// Containers may ask for the cgroup of a container whose shim was killed a moment ago.
func TestWhatADeadPodHasLeftInACgroupIsKilledAndWaitedFor(t *testing.T) {
	for where, wanted := range map[string]string{"the same cgroup": "", "one above": "/..", "one below": "/x"} {
		t.Run(where, func(t *testing.T) {
			l := newLife(t)
			if !l.Until(t, "shim", "live") {
				t.Fatal("it does not get there")
			}
			c := l.collector(t)
			dir := l.dir(t)
			if pids, _ := os.ReadFile(dir + "/cgroup.procs"); len(pids) == 0 {
				t.Fatal("nothing is left to kill")
			}
			ask := dir + wanted
			if wanted == "/.." {
				ask = filepath.Dir(dir)
			}
			holder, freed, err := c.Store.Vacate(t.Context(), ask)
			if holder != "" || !freed || err != nil {
				t.Fatalf("%q, %v, %v", holder, freed, err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
			// Another container has the cgroup by now, and the `delete` of the dead one
			// comes late.
			g, err := cgroup.Maker{}.Create(cgroup.Path{Spec: "/" + l.ID}, nil)
			if err != nil {
				t.Fatal(err)
			}
			lives := l.occupy(t)
			if exit := l.collect(t); !exit.Found || exit.PID == 0 {
				t.Errorf("its exit is %+v", exit)
			}
			if pids, err := g.Pids(); err != nil || len(pids) != 1 || pids[0] != lives.Pid {
				t.Errorf("the new container's processes are %v, %v; want %d", pids, err, lives.Pid)
			}
			if err := g.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if err := g.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheContainerThatHasACgroupIsNamed(t *testing.T) {
	l := newLife(t)
	shim := l.HaltAt(t, "live")
	c := l.collector(t)
	dir := l.dir(t)
	before, _ := os.ReadFile(dir + "/cgroup.procs")
	for _, ask := range []string{dir, filepath.Dir(dir), dir + "/x"} {
		if holder, freed, err := c.Store.Vacate(t.Context(), ask); holder != l.ID || freed || err != nil {
			t.Errorf("%s: %q, %v, %v", ask, holder, freed, err)
		}
	}
	if holder, _, err := c.Store.Vacate(t.Context(), dir+"-2"); holder != "" || err != nil {
		t.Errorf("a cgroup beside it: %q, %v", holder, err)
	}
	if after, _ := os.ReadFile(dir + "/cgroup.procs"); len(before) == 0 || !strings.HasPrefix(string(after), string(before)) {
		t.Errorf("its processes were %q, and are %q", before, after)
	}
	if err := shim.Kill(); err != nil {
		t.Fatal(err)
	}
	l.collect(t)
}

// Only the inode proves that a cgroup is the dead pod's: processes of others are never killed.
func TestACgroupThatNoDeadPodHasMadeIsLeftAlone(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	dir := l.dir(t)
	var inode uint64
	changeApps(t, c.Store, func(r *AppRecord) { inode = r.Cgroup.Inode })
	for what, change := range map[string]func(*AppRecord){
		"another inode": func(r *AppRecord) { r.Cgroup.Inode++ },
		"no inode":      func(r *AppRecord) { r.Cgroup.Inode = 0 },
	} {
		changeApps(t, c.Store, change)
		if holder, freed, err := c.Store.Vacate(t.Context(), dir); holder != "" || freed || err != nil {
			t.Errorf("%s: %q, %v, %v", what, holder, freed, err)
		}
	}
	if pids, _ := os.ReadFile(dir + "/cgroup.procs"); len(strings.Fields(string(pids))) == 0 {
		t.Error("its processes were killed")
	}
	changeApps(t, c.Store, func(r *AppRecord) { r.Cgroup.Inode = inode })
	l.collect(t)
}

func changeApps(t *testing.T, s *Store, change func(*AppRecord)) {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(s.Path(), "pods/*/*/appsinfo/*/app.json"))
	if len(files) == 0 {
		t.Fatal("there is no app")
	}
	for _, file := range files {
		var r AppRecord
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		change(&r)
		writeJSON(t, file, r)
	}
}

// The shim dies after it has made the cgroup and before it has recorded it. The cgroup in which
// relative paths begin was recorded when the pod was made.
func TestADeleteFindsACgroupOfARelativePathThatIsNotOnRecord(t *testing.T) {
	l := newLife(t)
	own, err := cgroup.Own()
	if err != nil {
		t.Fatal(err)
	}
	daemon := map[string]string{}
	for controller := range own {
		daemon[controller] = "/" + l.ID + "/containerd"
	}
	made := addRelative(t, l, newStore(t), daemon)
	path := made.cgroupPath()
	g, err := cgroup.Maker{}.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	above, _ := filepath.Glob("/sys/fs/cgroup/*/" + l.ID + "/containerd")
	if !strings.HasPrefix(g.Path(), "/"+l.ID+"/") || len(above) == 0 && g.Version() == 1 {
		t.Errorf("it was made at %s", g.Path())
	}
	if err := g.Release(); err != nil { // as at the end of the shim
		t.Fatal(err)
	}
	if got, err := made.kill(t.Context()); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, dir := range g.ABI().Dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	for _, dir := range above {
		_, _ = os.Remove(dir), os.Remove(filepath.Dir(dir))
	}
}

func TestAReleaseWithoutRelativePathsHasMadeTheDefaultCgroup(t *testing.T) {
	l := newLife(t)
	if path := addRelative(t, l, newStore(t), nil).cgroupPath(); path.Spec != "" {
		t.Errorf("the cgroup is looked for at %q", path.Spec)
	}
}

// addRelative adds an app whose cgroupsPath is relative to the cgroups of a daemon.
func addRelative(t *testing.T, l life, s *Store, daemon map[string]string) *AppDir {
	t.Helper()
	spec := `{"ociVersion":"1.2.0","linux":{"cgroupsPath":"x"}}`
	if err := os.WriteFile(filepath.Join(l.Bundle(), "config.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := s.Create(testKey, Stage1Record{Name: "fake"}, daemon)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.AddApp(l.ID, l.Bundle(), &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.find(d.UUID()) // as `delete` does, by the records alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.close)
	if a, err = again.openApp(a.name); err != nil {
		t.Fatal(err)
	}
	return a
}

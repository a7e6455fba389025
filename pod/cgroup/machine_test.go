package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
)

// machinePod and otherPod are UUIDs that no other process has.
var (
	machinePod = fmt.Sprintf("3f1c9a52-7d04-4c6e-8f21-%012x", os.Getpid())
	otherPod   = fmt.Sprintf("3f1c9a52-7d04-4c6e-8f22-%012x", os.Getpid())
)

// makeMachine makes cgroups at a path below every hierarchy, with one below them, and
// removes what is left of them at the end.
func makeMachine(t *testing.T, path string) (dirs []string) {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		dir := filepath.Join(m.Mountpoint, path)
		if err := os.MkdirAll(filepath.Join(dir, "system.slice"), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := removeBelow(within(t, 30*time.Second), dir); err != nil {
				t.Error(err)
			}
			for dir := filepath.Dir(dir); strings.HasPrefix(dir, m.Mountpoint+base); dir = filepath.Dir(dir) {
				_ = os.Remove(dir)
			}
		})
		dirs = append(dirs, dir)
	}
	return dirs
}

func expectThere(t *testing.T, there bool, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if _, err := os.Lstat(dir); (err == nil) != there {
			t.Errorf("%s: %v; want it there: %t", dir, err, there)
		}
	}
}

func TestACgroupNamedAfterAPodIsRemovedFromEveryHierarchy(t *testing.T) { // section 12 of rkt's ABI
	needHost(t)
	name := machineScope("3f1c9a52-7d04-4c6e-8f21-0a5b6c7d8e9f")
	if want := `machine-rkt\x2d3f1c9a52\x2d7d04\x2d4c6e\x2d8f21\x2d0a5b6c7d8e9f.scope`; name != want {
		t.Fatalf("a pod's cgroup is %s, want %s", name, want)
	}
	name = machineScope(machinePod)
	for _, where := range []string{"", base, base + "/a.slice/b.service"} {
		t.Run("below "+where+"/", func(t *testing.T) {
			recorded := filepath.Join("/", where, name)
			others := makeMachine(t, filepath.Join(base, machineScope(otherPod)))
			dirs := makeMachine(t, recorded)
			for range 2 { // what is gone is no error
				if err := RemoveMachine(within(t, time.Minute), machinePod, recorded); err != nil {
					t.Fatal(err)
				}
				expectThere(t, false, dirs)
			}
			expectThere(t, true, others)
		})
	}
}

func TestACgroupThatIsNotNamedAfterThePodIsLeftAlone(t *testing.T) {
	needHost(t)
	service := filepath.Join(base, "containerd.service")
	dirs := makeMachine(t, service)
	for _, recorded := range []string{"", "/", service, filepath.Join(service, machineScope(otherPod))} {
		if err := RemoveMachine(within(t, time.Minute), machinePod, recorded); err != nil {
			t.Error(err)
		}
	}
	expectThere(t, true, dirs)
}

// systemd in a pod outlives a systemd-nspawn that was killed.
func TestWhoIsInACgroupNamedAfterAPodIsKilled(t *testing.T) {
	needHost(t)
	recorded := filepath.Join(base, machineScope(machinePod))
	dirs := makeMachine(t, recorded)
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return strings.Contains(dir, "cpuset") }) // nobody can enter it
	for _, dir := range []string{dirs[0], filepath.Join(dirs[0], "system.slice")} {
		inside := exec.Command("sleep", "1000")
		if err := inside.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = inside.Wait()
		}()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(inside.Process.Pid)), 0); err != nil {
			t.Error(err)
		}
		t.Cleanup(func() {
			_ = inside.Process.Kill()
			<-ended
		})
	}
	if err := RemoveMachine(within(t, time.Minute), machinePod, recorded); err != nil {
		t.Error(err)
	}
	expectThere(t, false, dirs)
}

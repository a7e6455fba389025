package rktabi

import (
	"context"
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

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// machinePod and otherPod are UUIDs that no other process has.
var (
	machinePod = fmt.Sprintf("3f1c9a52-7d04-4c6e-8f21-%012x", os.Getpid())
	otherPod   = fmt.Sprintf("3f1c9a52-7d04-4c6e-8f22-%012x", os.Getpid())
)

// base is where the tests' cgroups are, so that nothing else is touched.
var base = fmt.Sprintf("/rkt-test-%d", os.Getpid())

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

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
			version := 1
			if m.FSType == "cgroup2" {
				version = 2
			}
			if err := cgroup.RemoveTree(within(t, 30*time.Second), version, dir); err != nil {
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
	stage1test.RequireRoot(t)
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
				if err := removeMachine(within(t, time.Minute), machinePod, recorded); err != nil {
					t.Fatal(err)
				}
				expectThere(t, false, dirs)
			}
			expectThere(t, true, others)
		})
	}
}

func TestTheCgroupsThatAPodIsNamedInGoWhenItIsDetached(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := filepath.Join(t.TempDir(), machinePod)
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	recorded := filepath.Join(base, machineScope(machinePod))
	dirs := makeMachine(t, recorded)
	if err := os.WriteFile(filepath.Join(dir, machineFile), []byte(recorded+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, commands := range map[string]stage1test.Scripts{
		"one app": nil,
		"mutable": {abi.AppAdd: ":", abi.AppStart: ":", abi.AppStop: ":", abi.AppRm: ":", abi.Enter: ":", abi.Attach: ":"},
	} {
		makeMachine(t, recorded)
		of := stage1test.Image{Annotations: map[string]string{abi.AnnotationVersion: "6"}, Scripts: commands}
		i, err := openStore(t).Image(t.Context(), of.Dir(t), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := Open(i, "rkt", children, stage1.Rules{}).Detach(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		expectThere(t, false, dirs)
	}
}

func TestACgroupThatIsNotNamedAfterThePodIsLeftAlone(t *testing.T) {
	stage1test.RequireRoot(t)
	service := filepath.Join(base, "containerd.service")
	dirs := makeMachine(t, service)
	for _, recorded := range []string{"", "/", service, filepath.Join(service, machineScope(otherPod))} {
		if err := removeMachine(within(t, time.Minute), machinePod, recorded); err != nil {
			t.Error(err)
		}
	}
	expectThere(t, true, dirs)
}

// The systemd in a pod goes on after its systemd-nspawn was killed.
func TestWhoIsInACgroupNamedAfterAPodIsKilled(t *testing.T) {
	stage1test.RequireRoot(t)
	recorded := filepath.Join(base, machineScope(machinePod))
	dirs := makeMachine(t, recorded)
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return strings.Contains(dir, "cpuset") }) // no process can enter such a cgroup, which has no CPUs
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
	if err := removeMachine(within(t, time.Minute), machinePod, recorded); err != nil {
		t.Error(err)
	}
	expectThere(t, false, dirs)
}

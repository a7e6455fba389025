package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestADelegatedCgroupIsItsUsersToDivideAndNotToLimit(t *testing.T) {
	g := newV2(t, "delegate")
	if _, err := os.Stat(delegatedFiles); err != nil {
		t.Skip("which files are to be delegated is not known: ", err)
	}
	const uid = 54321
	if err := g.Delegate(uid); err != nil {
		t.Fatal(err)
	}
	dir := g.Dir("")
	for name, want := range map[string]uint32{".": uid, "cgroup.procs": uid, "cgroup.subtree_control": uid, "cgroup.max.depth": 0, "cgroup.freeze": 0} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", name, got, want)
		}
	}
	out, err := asUserInside(t, dir, uid, `mkdir mine && echo 0 >mine/cgroup.procs && cat /proc/self/cgroup && echo 3 >cgroup.max.depth`)
	if err == nil {
		t.Error("the user has changed what limits the cgroup")
	}
	if !strings.Contains(out, g.Path()+"/mine") {
		t.Errorf("the user's process has not moved: %s", out)
	}
	if err := g.Remove(within(t, time.Minute)); err != nil {
		t.Errorf("remove it with what the user made: %v", err)
	}
}

func TestACgroupOfVersion1IsNotDelegated(t *testing.T) {
	dir := t.TempDir()
	g := newGroup(Record{Version: 1, Path: "/x", Dirs: map[string]string{primary(1): dir}}, nil)
	if err := g.Delegate(54321); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; int(got) != os.Getuid() {
		t.Errorf("it belongs to %d", got)
	}
}

// asUserInside runs a script as a user in a cgroup. Its working directory is the
// cgroup's.
func asUserInside(t *testing.T, dir string, uid uint32, script string) (string, error) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd()), Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestACgroupIsHandedToWhoSeesItAsTheRootAndMayWrite(t *testing.T) {
	mount := func(kind string, options ...string) []specs.Mount {
		return []specs.Mount{{Destination: "/proc", Type: "proc"}, {Destination: "/sys/fs/cgroup", Type: kind, Options: options}}
	}
	own := []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	mapped := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 200000, Size: 1000}, {ContainerID: 1000, HostID: 5000, Size: 1}}
	process := func(uid uint32) *specs.Process { return &specs.Process{User: specs.User{UID: uid}} }
	for _, c := range []struct {
		name string
		spec specs.Spec
		uid  int
		ok   bool
	}{
		{"root", specs.Spec{Process: process(0), Mounts: mount("cgroup", "nosuid", "rw"), Linux: &specs.Linux{Namespaces: own}}, 0, true},
		{"a user", specs.Spec{Process: process(7), Mounts: mount("cgroup2"), Linux: &specs.Linux{Namespaces: own}}, 7, true},
		{"root of a user namespace", specs.Spec{Process: process(0), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own, UIDMappings: mapped}}, 200000, true},
		{"a user of a second mapping", specs.Spec{Process: process(1000), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own, UIDMappings: mapped}}, 5000, true},
		{"a user that nobody is", specs.Spec{Process: process(1001), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own, UIDMappings: mapped}}, 0, false},
		{"read-only", specs.Spec{Process: process(7), Mounts: mount("cgroup", "nosuid", "ro"), Linux: &specs.Linux{Namespaces: own}}, 0, false},
		{"read-only below as well", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw", "rro"), Linux: &specs.Linux{Namespaces: own}}, 0, false},
		{"writable in the end", specs.Spec{Process: process(7), Mounts: mount("cgroup2", "ro", "rw"), Linux: &specs.Linux{Namespaces: own}}, 7, true},
		{"a user namespace whose mappings are not known", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{
			Namespaces: append(own[:2:2], specs.LinuxNamespace{Type: specs.UserNamespace, Path: "/proc/1/ns/user"}),
		}}, 7, false},
		{"no mount", specs.Spec{Process: process(7), Linux: &specs.Linux{Namespaces: own}}, 0, false},
		{"the host's cgroup namespace", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{}}, 0, false},
		{"another's cgroup namespace", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.CgroupNamespace, Path: "/proc/1/ns/cgroup"}},
		}}, 0, false},
		{"no process", specs.Spec{Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own}}, 0, false},
		{"nothing of Linux", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw")}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if uid, ok := Owner(&c.spec); uid != c.uid || ok != c.ok {
				t.Errorf("%d, %v; want %d, %v", uid, ok, c.uid, c.ok)
			}
		})
	}
}

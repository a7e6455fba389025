package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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

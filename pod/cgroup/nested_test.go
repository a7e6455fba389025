package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nest makes cgroups below a directory, so deep that the path of the lowest is longer than
// PATH_MAX, and returns the lowest.
func nest(t *testing.T, dir string) *os.File {
	t.Helper()
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 240)
	for range unix.PathMax/len(name) + 3 {
		if err := unix.Mkdirat(int(at.Fd()), name, 0o755); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = at.Close()
		at = os.NewFile(uintptr(fd), name)
	}
	t.Cleanup(func() { _ = at.Close() })
	return at
}

// sleepIn runs a process in the lowest cgroups of nest.
func sleepIn(t *testing.T, lowest ...*os.File) inside {
	t.Helper()
	var dirs []string
	for _, f := range lowest {
		dirs = append(dirs, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()))
	}
	return enterDirs(t, dirs, "cgroup.procs", "exec sleep 600")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// gone checks that a cgroup and its processes have ended.
func gone(t *testing.T, g *Group, p inside) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		t.Error("its process lives")
	}
	for _, dir := range g.dirs {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
}

// A process that may write to its cgroup can nest cgroups until no path leads to the lowest.
func TestCgroupsNestedDeeperThanAPathAreListedKilledAndRemoved(t *testing.T) {
	for name, of := range map[string]func(t *testing.T) (*Group, []string){
		"version 1": func(t *testing.T) (*Group, []string) {
			needV1(t)
			g := create(t, "nested", nil)
			return g, []string{g.Dir("devices"), g.Dir("memory"), g.Dir("freezer")}
		},
		"version 2": func(t *testing.T) (*Group, []string) {
			g := newV2(t, "nested")
			return g, []string{g.Dir("")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, dirs := of(t)
			var lowest []*os.File
			for _, dir := range dirs {
				if dir != "" {
					lowest = append(lowest, nest(t, dir))
				}
			}
			p := sleepIn(t, lowest...)
			if pids, err := g.Pids(); err != nil || len(pids) != 1 || pids[0] != p.Process.Pid {
				t.Errorf("it lists %v, %v; want %d", pids, err, p.Process.Pid)
			}
			w := &OOMWatch{group: g}
			if _, err := w.count(); g.Version() == 1 && err != nil {
				t.Errorf("count the kills: %v", err)
			}
			if below, err := lockedBelow(g.Version(), g.record.Dir()); below != "" || err != nil {
				t.Errorf("locked below: %q, %v", below, err)
			}
			if err := g.End(within(t, 20*time.Second)); err != nil {
				t.Errorf("end: %v", err)
			}
			gone(t, g, p)
		})
	}
}

// cgroup.kill is of Linux 5.14, and the kernel refuses it for threaded cgroups.
func TestNestedCgroupsOfVersion2AreKilledWithoutCgroupKill(t *testing.T) {
	g := newV2(t, "nested-each")
	p := sleepIn(t, nest(t, g.Dir("")))
	victims, err := g.killEach()
	closeAll(victims)
	if err != nil {
		t.Error(err)
	}
	if err := g.Remove(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	gone(t, g, p)
}

// A process that a container has frozen in a nested cgroup ends only when it is thawed.
func TestANestedFrozenCgroupOfVersion1IsThawedAndKilled(t *testing.T) {
	needV1(t)
	g := create(t, "nested-frozen", nil)
	if g.Dir("freezer") == "" {
		t.Skip("no freezer")
	}
	lowest := nest(t, g.Dir("freezer"))
	p := sleepIn(t, lowest)
	state := fmt.Sprintf("/proc/self/fd/%d/freezer.state", lowest.Fd())
	if err := os.WriteFile(state, []byte("FROZEN"), 0); err != nil {
		t.Fatal(err)
	}
	if err := g.End(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	gone(t, g, p)
}

// A walk follows descriptors, one at a time, so that its depth is not limited by that of open
// files.
func TestAWalkHasFewFilesOpen(t *testing.T) {
	g := newV2(t, "wide")
	nest(t, g.Dir(""))
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open) + 6), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }()
	if _, err := g.Pids(); err != nil {
		t.Error(err)
	}
	if err := g.Remove(within(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
}

func TestARemovalOfNestedCgroupsNamesTheProcessesInThem(t *testing.T) {
	g := newV2(t, "nested-busy")
	p := sleepIn(t, nest(t, g.Dir("")))
	err := g.Remove(within(t, 100*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), itoa(p.Process.Pid)) || len(err.Error()) > 1000 {
		t.Errorf("%v; want the process %d and the end of the context", err, p.Process.Pid)
	}
}

// The shim, or its supervisor, may itself be in the cgroup that a record names.
func TestVersion2KillRefusesToKillThisProcessInANestedCgroup(t *testing.T) {
	if dir := os.Getenv("CGROUP_TEST_KILL_AROUND"); dir != "" {
		g := newGroup(Record{Version: 2, Path: "/x", Dirs: map[string]string{"": dir}}, nil)
		fmt.Print(g.Kill(context.Background()), "; ", g.Signal(unix.SIGKILL))
		os.Exit(0)
	}
	g := newV2(t, "self")
	other := enter(t, g, "exec sleep 60")
	for _, in := range []string{"", "deeper", "deeper/still"} {
		dir := filepath.Join(g.Dir(""), in)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", "echo 0 > "+dir+"/cgroup.procs; exec "+self+" -test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "CGROUP_TEST_KILL_AROUND="+g.Dir(""))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "is in it: not killed") != 2 {
			t.Errorf("from /%s: %v: %s", in, err, out)
		}
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("another process was killed: %v", err)
	}
}

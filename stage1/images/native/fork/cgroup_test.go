package fork

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// cgroup2 makes a cgroup of version 2 and removes it with the test.
func cgroup2(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		dir := fmt.Sprintf("%s/native-fork-test-%d", root, os.Getpid())
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skip("needs a writable cgroup2: ", err)
		}
		t.Cleanup(func() { wait.Until(t, "the removal of "+dir, func() bool { return os.Remove(dir) == nil }) })
		return dir
	}
	t.Skip("needs a mounted cgroup2")
	return ""
}

func TestAProcessIsBornInItsCgroup(t *testing.T) {
	p := sleeper(t)
	dir := cgroup2(t)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.Cgroup = f
	for _, apart := range []bool{false, true} {
		p.Apart = apart
		pid := start(t, p)
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "0::/"+filepath.Base(dir)) && !strings.Contains(string(b), filepath.Base(dir)+"\n") {
			t.Errorf("apart %v: it is in %s, want %s", apart, b, dir)
		}
	}
}

// Root of a user namespace may not enter the cgroup of another user of it.
func TestAProcessThatJoinsAUserNamespaceIsBornInACgroupOfItsUsers(t *testing.T) {
	p := sleeper(t)
	p.New = unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID
	p.UIDMappings = []IDMapping{{0, 100000, 1000}}
	p.GIDMappings = []IDMapping{{0, 100000, 1000}}
	p.Root = true
	app := start(t, p)
	fd, err := unix.PidfdOpen(app, 0)
	if err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	defer pidfd.Close()

	q := sleeper(t)
	dir := cgroup2(t)
	if err := os.Chown(dir+"/cgroup.procs", 100000, -1); err != nil {
		t.Fatal(err)
	}
	if q.Cgroup, err = os.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer q.Cgroup.Close()
	q.Joins = []Join{{What: "the app", File: pidfd, Flags: int(p.New)}}
	q.Root, q.Apart = true, true
	pid := start(t, q)
	for _, kind := range kinds {
		if a, b := namespace(t, app, kind), namespace(t, pid, kind); a != b {
			t.Errorf("%s: in %s, want %s", kind, b, a)
		}
	}
	if uid := field(t, pid, "Uid"); uid[0] != "100000" {
		t.Errorf("Uid is %v, want 100000", uid)
	}
	if b, err := os.ReadFile(dir + "/cgroup.procs"); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(pid) {
		t.Errorf("in the cgroup are %q (%v), want %d", b, err, pid)
	}
}

func TestAFrozenChildBlocksNobodyAndIsGivenUp(t *testing.T) {
	p := sleeper(t)
	dir := cgroup2(t)
	freeze := filepath.Join(dir, "cgroup.freeze")
	if err := os.WriteFile(freeze, []byte("1"), 0); err != nil {
		t.Skip("needs the freezer of cgroup2: ", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	frozen := *p
	frozen.Cgroup, frozen.Apart = f, true
	gone := errors.New("the caller has gone")
	begin := func() (pid string, giveUp func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := Start(ctx, &frozen)
			done <- err
		}()
		wait.Until(t, "a process is in the cgroup", func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			pid = strings.TrimSpace(string(b))
			return pid != ""
		})
		return pid, func() {
			t.Helper()
			cancel(gone)
			if err := wait.For(t, "the start to be given up", done); !errors.Is(err, gone) {
				t.Errorf("error %v, want %v", err, gone)
			}
			if _, err := os.Stat("/proc/" + pid); !os.IsNotExist(err) {
				t.Errorf("process %s is still there: %v", pid, err)
			}
		}
	}
	pid, giveUp := begin()
	if fds, err := os.ReadDir("/proc/" + pid + "/fd"); err != nil || len(fds) > len(p.Files)+3 {
		t.Errorf("the frozen process holds %d descriptors (%v), want its %d files, report, program and cgroup", len(fds), err, len(p.Files))
	}
	start(t, p) // another process can start meanwhile
	giveUp()
	// A process may be given up as soon as it exists, before it was reported.
	for range 20 {
		_, giveUp := begin()
		giveUp()
	}
}

package fork

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// idles begins a process that executes nothing, and returns it with the end of the pipe that releases it.
func idles(t *testing.T, change func(*Process)) (pid int, release *os.File) {
	t.Helper()
	p := sleeper(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	t.Cleanup(func() { w.Close() })
	p.Exe, p.Args = nil, nil
	p.Idle = &Idle{Name: "idle-name", Release: r}
	change(p)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	b, err := Begin(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer context.AfterFunc(ctx, func() { _ = unix.Kill(b.PID, unix.SIGKILL) })()
	if _, err := b.Executed(); err != nil {
		_, _ = unix.Wait4(b.PID, nil, 0, nil)
		t.Fatal(err)
	}
	return b.PID, w
}

// expectEnd waits for a process and returns the signal that has ended it.
func expectEnd(t *testing.T, pid int, release *os.File) {
	t.Helper()
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil || !ws.Signaled() || ws.Signal() != unix.SIGKILL {
		t.Errorf("the process has ended with %v, %v; want a SIGKILL", ws, err)
	}
}

func read(t *testing.T, pid int, file string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAnIdleProcessWaitsAndKillsItself(t *testing.T) {
	pid, release := idles(t, func(*Process) {})
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGTSTP, unix.SIGUSR1, unix.SIGCHLD, unix.SIGIO, 34, 64} {
		if err := unix.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, pid, "comm"); got != "idle-name\n" {
		t.Errorf("its name is %q", got)
	}
	if session := field(t, pid, "NSsid"); session[0] != fmt.Sprint(pid) {
		t.Errorf("it is in the session %s", session)
	}
	expectDescriptors(t, pid, 4)
	if threads := field(t, pid, "Threads"); threads[0] != "1" {
		t.Errorf("it has %s threads", threads)
	}
	expectEnd(t, pid, release)
}

// It enters cgroups of both versions, and keeps no descriptor of them. Those of version 1 are ordinary files here.
func TestAnIdleProcessHasNoRightsAndGetsNone(t *testing.T) {
	pid, release := idles(t, func(*Process) {})
	defer expectEnd(t, pid, release)
	for name, want := range map[string]string{"CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapInh": "0000000000000000", "NoNewPrivs": "1"} {
		if got := field(t, pid, name)[0]; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestAnIdleProcessEntersItsCgroups(t *testing.T) {
	dir := cgroup2(t)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tasks := []string{t.TempDir() + "/a", t.TempDir() + "/b"}
	for _, path := range tasks {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pid, release := idles(t, func(p *Process) { p.Cgroup, p.Apart, p.Tasks = f, true, tasks })
	if got := read(t, pid, "cgroup"); !strings.Contains(got, "/"+filepath.Base(dir)+"\n") {
		t.Errorf("it is in %s, want %s", got, dir)
	}
	for _, path := range tasks {
		if text, err := os.ReadFile(path); err != nil || string(text) != "0" {
			t.Errorf("%s has the text %q, %v", path, text, err)
		}
	}
	expectDescriptors(t, pid, 4)
	expectEnd(t, pid, release)
}

// expectDescriptors expects the Files of a process, of which there are three, and those of its Idle.
func expectDescriptors(t *testing.T, pid, want int) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != want {
		t.Errorf("it has the descriptors %v, want %d", entries, want)
	}
}

// The root of an idle process is a detached mount, or an empty directory, and nothing else is mounted there.
func TestTheRootOfAnIdleProcessIsItsOnlyMount(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	tree := os.NewFile(uintptr(fd), "tree")
	defer tree.Close()
	// The supervisor of VMs does this, too: pivot_root(2) refuses a shared mount, as systemd makes all.
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		t.Fatal(err)
	}
	// What an idle process unmounts must not be unmounted here, although the mount is shared.
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	mounts := func() (own []string) {
		for line := range strings.Lines(read(t, os.Getpid(), "mountinfo")) {
			if strings.Contains(line, dir) { // others are those of other tests
				own = append(own, line)
			}
		}
		return own
	}
	before := mounts()
	for name, c := range map[string]struct {
		root *os.File
		want string
	}{"a mount": {tree, "file"}, "nothing": {nil, ""}} {
		t.Run(name, func(t *testing.T) {
			pid, release := idles(t, func(p *Process) { p.Idle.Root = c.root })
			entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/", pid))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("its root has %q, want %q", got, c.want)
			}
			if mounts := read(t, pid, "mountinfo"); strings.Count(mounts, "\n") != 1 {
				t.Errorf("it has the mounts\n%s", mounts)
			}
			expectEnd(t, pid, release)
		})
	}
	if after := mounts(); len(before) != 1 || !slices.Equal(after, before) {
		t.Errorf("the mounts here have become %q from %q", after, before)
	}
}

func TestAnIdleProcessSaysThatItsTerminalHasAnotherSize(t *testing.T) {
	m, s, err := proc.OpenTerminal(0)
	if err != nil {
		t.Fatal(err)
	}
	master, slave := os.NewFile(uintptr(m), "master"), os.NewFile(uintptr(s), "slave")
	defer master.Close()
	defer slave.Close()
	changed, sizes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer changed.Close()
	defer sizes.Close()
	pid, release := idles(t, func(p *Process) { p.Idle.Terminal, p.Idle.Sizes = slave, sizes })
	if tty := strings.Fields(read(t, pid, "stat"))[6]; tty == "0" {
		t.Error("it has no controlling terminal")
	}
	for n := range uint16(3) {
		if err := unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: 10 + n, Col: 20}); err != nil {
			t.Fatal(err)
		}
		if _, err := changed.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	expectEnd(t, pid, release)
}

// A process of the host that stands for a container of a machine must not have the memory of its
// supervisor, which has the secrets of all containers.
func TestAnIdleProcessHasNothingOfItsParentsMemory(t *testing.T) {
	if !forgets {
		t.Skip("the race detector's children keep the memory")
	}
	secret := bytes.Repeat([]byte("not for others "), 100)
	pid, release := idles(t, func(*Process) {})
	if search(t, pid, secret) {
		t.Error("it has a text of this process")
	}
	expectEnd(t, pid, release)
}

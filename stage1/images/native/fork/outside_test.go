package fork

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

const (
	load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	allowed, refused = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

func filterOf(f ...unix.SockFilter) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), len(f)*unix.SizeofSockFilter)
}

// refusing returns a filter that refuses a system call.
func refusing(number uint32) []byte {
	return filterOf(unix.SockFilter{Code: load}, unix.SockFilter{Code: equal, K: number, Jf: 1},
		unix.SockFilter{Code: ret, K: refused}, unix.SockFilter{Code: ret, K: allowed})
}

// joiner returns a process that joins the PID namespace of another one.
func joiner(t *testing.T) *Process {
	t.Helper()
	p := sleeper(t)
	p.New = unix.CLONE_NEWNS | unix.CLONE_NEWPID
	app := start(t, p)
	fd, err := unix.PidfdOpen(app, 0)
	if err != nil {
		t.Fatal(err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	t.Cleanup(func() { pidfd.Close() })
	return &Process{Files: p.Files, Joins: []Join{{What: "the app", File: pidfd, Flags: int(p.New)}}}
}

// A process that can trace every process of the namespace gains no more than the program's rights.
func TestAnExecAppearsInItsNamespaceWithTheRightsOfItsProgramAndNoOthers(t *testing.T) {
	const raw, ptrace, admin = 1 << unix.CAP_NET_RAW, 1 << unix.CAP_SYS_PTRACE, 1 << unix.CAP_SYS_ADMIN
	for name, c := range map[string]struct {
		change    func(*testing.T, *Process)
		permitted uint64
	}{
		"no filter": {func(*testing.T, *Process) {}, raw | ptrace},
		"a filter":  {func(_ *testing.T, p *Process) { p.Program.Filter = refusing(unix.SYS_MOUNT) }, raw | ptrace},
		"a filter and no_new_privs": {func(_ *testing.T, p *Process) {
			p.Program.Filter, p.Program.NoNewPrivileges = refusing(unix.SYS_CLONE), true
		}, raw | ptrace},
		"a filter that forbids the clone": {func(_ *testing.T, p *Process) { p.Program.Filter = refusing(unix.SYS_CLONE) }, raw | ptrace | admin},
		"files of cgroups": {func(t *testing.T, p *Process) {
			p.Tasks = []string{filepath.Join(t.TempDir(), "tasks")}
			if err := os.WriteFile(p.Tasks[0], nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, raw | ptrace},
		"a cgroup of version 2": {func(t *testing.T, p *Process) {
			f, err := os.Open(cgroup2(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			p.Cgroup, p.Apart = f, true
		}, raw | ptrace},
		"another user": {func(_ *testing.T, p *Process) {
			p.Program.UID, p.Program.GID = 1000, 1000
			p.Program.Capabilities.Inheritable, p.Program.Capabilities.Ambient = raw, raw
		}, raw | ptrace},
	} {
		t.Run(name, func(t *testing.T) {
			p := joiner(t)
			p.Program = &Program{
				Dir: "/", Paths: []string{busybox}, Args: []string{"true"},
				Capabilities: Capabilities{Bounding: raw | ptrace, Permitted: raw | ptrace, Effective: raw},
			}
			c.change(t, p)
			p.Born = func(pid int) error {
				waits(t, pid, unix.SYS_READ)
				if got, want := field(t, pid, "CapPrm")[0], fmt.Sprintf("%016x", c.permitted); got != want {
					t.Errorf("it appears with the capabilities %s, want %s", got, want)
				}
				if got, want := field(t, pid, "CapBnd")[0], fmt.Sprintf("%016x", uint64(raw|ptrace)); got != want {
					t.Errorf("it appears with the bounding set %s, want %s", got, want)
				}
				if got := field(t, pid, "Uid")[0]; got != fmt.Sprint(p.Program.UID) {
					t.Errorf("it appears with user %s, want %d", got, p.Program.UID)
				}
				fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
				if err != nil || len(fds) != len(p.Files)+1 {
					t.Errorf("it appears with %d descriptors (%v), want its files and the report", len(fds), err)
				}
				return nil
			}
			b, err := Begin(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if _, err := b.Executed(); err != nil {
				t.Error(err)
			}
			if ws := reap(b.PID); ws.ExitStatus() != 0 {
				t.Errorf("status %#x", ws)
			}
		})
	}
}

// A process of the container that has taken the new process over can write reports of its own. A pid in
// one of them must not be killed.
func TestAForgedPidIsNotTakenForTheProcess(t *testing.T) {
	p := joiner(t)
	p.Program = &Program{Dir: "/", Paths: []string{busybox}, Args: []string{"true"}}
	victim := execute(t, "sleep", "1000")
	defer func() { _ = syscall.Kill(victim, syscall.SIGKILL); reap(victim) }()
	for _, forgedFirst := range []bool{true, false} {
		ours, theirs, err := seqpacket.Pair("a socket for a new process")
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		defer theirs.Close()
		b := &starting{p: p, words: ours.File, helper: execute(t, "true")} // the last helper
		reports := []report{{step: cloned, value: uint32(victim)}, {step: cloned, value: 1 << 22}}
		if !forgedFirst {
			reports[0], reports[1] = reports[1], reports[0]
		}
		for _, r := range reports {
			tell(t, theirs, r)
		}
		if err := b.attend(t.Context()); !errors.Is(err, errForged) {
			t.Errorf("forged first %v: error %v, want %v", forgedFirst, err, errForged)
		}
		b.undo()
		if err := syscall.Kill(victim, 0); err != nil || field(t, victim, "State")[0] == "Z" {
			t.Fatalf("the process of the forged pid was killed: %v", err)
		}
	}
}

// The helper that takes the identity is in the app's cgroup, and may be frozen there.
func TestAnExecInAFrozenCgroupIsGivenUpWithItsHelpers(t *testing.T) {
	p := joiner(t)
	p.Program = &Program{Dir: "/", Paths: []string{busybox}, Args: []string{"true"}}
	dir := cgroup2(t)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("1"), 0); err != nil {
		t.Skip("needs the freezer of cgroup2: ", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.Cgroup, p.Apart = f, true
	procs := func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		return string(b)
	}
	gone := errors.New("the caller has gone")
	for range 10 {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := Begin(ctx, p)
			done <- err
		}()
		wait.Until(t, "a process is in the cgroup", func() bool { return procs() != "" })
		cancel(gone)
		if err := wait.For(t, "the start to be given up", done); !errors.Is(err, gone) {
			t.Errorf("error %v, want %v", err, gone)
		}
		if left := procs(); left != "" {
			t.Fatalf("processes are left in the cgroup: %q", left)
		}
	}
}

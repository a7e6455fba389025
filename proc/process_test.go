package proc_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func setpgid() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func TestStatOfThisProcess(t *testing.T) {
	s, err := proc.ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if s.PID != os.Getpid() || s.Parent != os.Getppid() || s.StartTime == 0 {
		t.Errorf("stat of %d, child of %d: %+v", os.Getpid(), os.Getppid(), s)
	}
	if parent, err := proc.Parent(os.Getpid()); err != nil || parent != os.Getppid() {
		t.Errorf("parent %d, %v", parent, err)
	}
}

func TestBootIDIsTheKernels(t *testing.T) {
	id, err := proc.BootID()
	if want := os.Getenv("BOOT_ID"); err != nil || len(id) != 36 || want != "" && id != want {
		t.Errorf("boot id %q, %v", id, err)
	}
}

func TestBootIDIsReadFromAProcfsOfItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	want, err := proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	if out := isolated(t, "mount -t tmpfs tmpfs /proc/sys/kernel/random", "TestBootIDIsTheKernels", "BOOT_ID="+want); !strings.Contains(out, "PASS") {
		t.Error(out)
	}
}

// isolated runs a test of this package in a mount namespace in which a script was executed.
func isolated(t *testing.T, script, test string, env ...string) string {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", script+`; exec "$@"`, "sh", os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

func TestAnotherStartTimeIsAnotherProcess(t *testing.T) {
	c := newChildren(t)
	child := start(t, c, "exec sleep 60")
	at, err := proc.StartTime(child.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := proc.Signal(child.PID(), at+1, syscall.SIGKILL); !errors.Is(err, proc.ErrGone) || !errdefs.IsNotFound(err) {
		t.Errorf("signal to a process with another start time: %v", err)
	}
	if !proc.Alive(child.PID(), at) || proc.Alive(child.PID(), at+1) {
		t.Error("the process was killed, or its start time is not looked at")
	}
	if err := proc.Signal(child.PID(), at, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := child.Wait(); e.Signal != 9 || e.Code != 137 {
		t.Errorf("exit %+v", e)
	}
	if _, err := proc.Open(child.PID(), at); !errors.Is(err, proc.ErrGone) {
		t.Errorf("opened a reaped process: %v", err)
	}
}

func TestSignalAfterReapingReachesNobody(t *testing.T) {
	c := newChildren(t)
	child := start(t, c, "exec sleep 60")
	p, err := proc.Open(child.PID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if !p.Alive() {
		t.Error("not alive")
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	if p.Alive() {
		t.Error("alive after it was reaped")
	}
	if err := p.Signal(0); !errors.Is(err, proc.ErrGone) {
		t.Errorf("signal after reaping: %v", err)
	}
}

func TestWaitEndsWithTheProcessOrTheContext(t *testing.T) {
	c := newChildren(t)
	child := start(t, c, "exec sleep 60")
	p, err := proc.Open(child.PID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait with a deadline: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Wait(t.Context()) }()
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("wait after an earlier one was cancelled: %v", err)
	}
}

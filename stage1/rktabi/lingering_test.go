package rktabi

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

func TestWhatAClientHasNotReadIsWaitedFor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l := lingers(os.Getpid(), [3]*os.File{1: w})
	defer l.close()
	expect := func(want bool, when string) {
		t.Helper()
		if got := l.unread(); got != want {
			t.Errorf("%s: unread is %t", when, got)
		}
	}
	say := func() {
		t.Helper()
		before := l.progress().written
		if _, err := w.WriteString("last words"); err != nil {
			t.Fatal(err)
		}
		if now := l.progress().written; now < before+10 {
			t.Errorf("written was %d and is %d", before, now)
		}
	}
	expect(false, "at first")
	say()
	expect(true, "before the client reads")
	if _, err := r.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	expect(false, "once the client has read")
	say()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	expect(false, "once the client has gone")
}

func TestWhoHasNotBegunToCarryIsWaitedFor(t *testing.T) {
	// The first shell only waits for the processes that it starts.
	busy := exec.Command("sh", "-c", "while :; do /bin/true; done")
	idle := exec.Command("sh", "-c", "sleep 1000; :")
	for _, c := range []*exec.Cmd{busy, idle} {
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		release := children.Expect()
		defer release()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			_ = c.Wait()
		})
	}
	moves := func(c *exec.Cmd) func() bool {
		l := &lingering{pid: c.Process.Pid}
		before := l.progress()
		return func() bool { return l.progress() != before }
	}
	wait.Until(t, "one that works is seen to", moves(busy))
	resting := func() bool {
		moved := moves(idle)
		time.Sleep(200 * time.Millisecond)
		return !moved()
	}
	wait.Until(t, "one that waits is seen to", resting)
}

package proc_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// For both kinds of numbers Linux 6.1 returns EINVAL. Linux 6.15 returns ENOENT
// for a thread.
func TestANumberThatIsNoLongerAProcesssIsGone(t *testing.T) {
	t.Run("a process group's", func(t *testing.T) {
		leader := exec.Command("/bin/sh", "-c", "sleep 60 >/dev/null 2>&1 &")
		leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := leader.Run(); err != nil {
			t.Fatal(err)
		}
		group := leader.Process.Pid
		defer func() { _ = unix.Kill(-group, unix.SIGKILL) }()
		if err := unix.Kill(-group, 0); err != nil {
			t.Fatalf("the group is not there: %v", err)
		}
		expectGone(t, group)
	})
	t.Run("a thread's", func(t *testing.T) {
		// One of two locked goroutines is not on the first thread.
		tids, release := make(chan int), make(chan struct{})
		defer close(release)
		for range 2 {
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				tids <- unix.Gettid()
				<-release
			}()
		}
		for _, tid := range []int{<-tids, <-tids} {
			if tid != os.Getpid() {
				expectGone(t, tid)
			}
		}
	})
}

func expectGone(t *testing.T, pid int) {
	t.Helper()
	if p, err := proc.Open(pid, 0); !errors.Is(err, proc.ErrGone) {
		t.Errorf("open: %v, %v", p, err)
	}
	if err := proc.Signal(pid, 1, unix.SIGKILL); !errors.Is(err, proc.ErrGone) {
		t.Errorf("signal: %v", err)
	}
}

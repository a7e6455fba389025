package proc_test

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// A process that gets the pid of a child gets none of the child's signals, even if they are being
// sent when the child ends. The test runs in a PID namespace, where it chooses the next pid.
func TestAProcessThatGetsTheNumberOfAChildGetsNoneOfItsSignals(t *testing.T) {
	const inside = "RKT_TEST_REUSE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount("/proc", unix.MNT_DETACH) }()
	c := newChildren(t)
	reused := 0
	for range 100 {
		child := undecided(t, c, "kill -9 $$")
		child.Decide(nil, nil)
		var senders sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			senders.Go(func() {
				for {
					_ = child.Kill()
					_ = child.Signal(unix.SIGTERM)
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		child.Wait()
		victim := withPID(t, c, child.PID())
		close(stop)
		senders.Wait()
		if victim == nil {
			continue
		}
		reused++
		if f, err := child.Pidfd(); err == nil {
			f.Close()
			t.Error("the child's pidfd is that of another process")
		}
		if err := victim.Signal(0); err != nil {
			t.Errorf("process %d: %v", victim.PID(), err)
		}
		victim.Drop()
	}
	if reused == 0 {
		t.Error("no process got the pid of another one")
	}
}

// withPID starts a process that has a certain pid. It returns nil if a thread of this process has
// the number.
func withPID(t *testing.T, c *proc.Children, pid int) *proc.Child {
	t.Helper()
	if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
		t.Fatal(err)
	}
	child := undecided(t, c, "exec sleep 1000")
	if child.PID() == pid {
		return child
	}
	child.Drop()
	return nil
}

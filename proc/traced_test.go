package proc_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// A placeholder is traced until it is stopped, and waitid(2) reports the stop like an end.
func TestAStopOfATracedChildIsNotItsEnd(t *testing.T) {
	runtime.LockOSThread() // which traces the child
	defer runtime.UnlockOSThread()
	c := newChildren(t)
	child, err := c.Make(func() (int, error) {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
		if err != nil {
			return 0, err
		}
		pid := p.Pid
		return pid, p.Release()
	})
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the child is stopped", func() bool { s, err := proc.ReadStat(child.PID()); return err == nil && s.State == 't' })
	if err := child.Signal(0); err != nil {
		t.Error(err)
	}
	if e := child.Drop(); e.Signal != 9 {
		t.Errorf("exit %+v", e)
	}
}

package proc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// requirements.md#X7
func TestUnknownOrphansAreReapedInSilence(t *testing.T) {
	c := newChildren(t)
	for range 5 {
		pid := orphan(t, c, "exit 1")
		wait.Until(t, fmt.Sprintf("orphan %d is reaped", pid), func() bool { return !exists(pid) })
	}
}

func TestAdoptedOrphanIsRecordedBeforeItIsReaped(t *testing.T) {
	c := newChildren(t)
	release := c.Expect()
	pid := orphan(t, c, "sleep 0.1; exit 42")
	at, err := proc.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	var recorded proc.Exit
	var zombie bool
	ended := make(chan proc.Exit, 1)
	err = c.Adopt(pid, at, func(e proc.Exit) {
		s, err := proc.ReadStat(pid)
		recorded, zombie = e, err == nil && s.State == 'Z'
	}, func(e proc.Exit) { ended <- e })
	release()
	if err != nil {
		t.Fatal(err)
	}
	e := <-ended
	if e.Code != 42 || e.Signal != 0 || e.Time.IsZero() || recorded != e {
		t.Errorf("ended %+v, recorded %+v", e, recorded)
	}
	if !zombie {
		t.Error("it was reaped before it was recorded")
	}
	if exists(pid) {
		t.Error("it was not reaped")
	}
}

// requirements.md#X2
func TestOrphanThatDiedBeforeItWasAdoptedIsKept(t *testing.T) {
	c := newChildren(t)
	release := c.Expect()
	pid := orphan(t, c, "kill -SEGV $$")
	wait.Until(t, "it ends and is not reaped", func() bool { s, err := proc.ReadStat(pid); return err == nil && s.State == 'Z' })
	// Another child ends meanwhile, so that Children looks for children to
	// reap.
	start(t, c, "exit 0").Wait()
	ended := make(chan proc.Exit, 1)
	if err := c.Adopt(pid, 0, nil, func(e proc.Exit) { ended <- e }); err != nil {
		t.Fatal(err)
	}
	release()
	if e := <-ended; e.Signal != 11 || e.Code != 139 {
		t.Errorf("exit %+v", e)
	}
}

func TestAdoptWithoutExpectSaysThatItIsGone(t *testing.T) {
	c := newChildren(t)
	pid := orphan(t, c, "exit 0")
	wait.Until(t, "it is reaped", func() bool { return !exists(pid) })
	if err := c.Adopt(pid, 0, nil, nil); !errors.Is(err, proc.ErrGone) {
		t.Errorf("Adopt of a process that was reaped: %v", err)
	}
}

func TestAdoptRefusesOthersChildrenAndKnownOnes(t *testing.T) {
	c := newChildren(t)
	if err := c.Adopt(os.Getppid(), 0, nil, nil); !errors.Is(err, proc.ErrNotChild) {
		t.Errorf("adopted the parent: %v", err)
	}
	child := start(t, c, "exec sleep 60")
	if err := c.Adopt(child.PID(), 0, nil, nil); err == nil {
		t.Error("adopted a started child")
	}
}

func TestStartedChildrenAreNeverStolen(t *testing.T) {
	c := newChildren(t)
	var wg sync.WaitGroup
	var wrong atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				child, err := c.Start([]string{"/bin/sh", "-c", "exit $0", string(rune('1' + i))}, &os.ProcAttr{})
				if err != nil || child.Wait().Code != i+1 {
					wrong.Add(1)
				}
				// A program that cannot be executed: os.StartProcess reaps its
				// child by itself.
				if _, err := c.Start([]string{"/nonexistent"}, &os.ProcAttr{}); !errors.Is(err, os.ErrNotExist) {
					wrong.Add(1)
				}
			}
		})
	}
	// Meanwhile there are orphans, and processes that were started by other
	// means.
	for range 10 {
		orphan(t, c, "exit 0")
		release := c.Expect()
		if err := exec.Command("/bin/sh", "-c", "exit 0").Run(); err != nil {
			t.Errorf("exec.Command under Expect: %v", err)
		}
		release()
	}
	wg.Wait()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d children had the exit of another child, or none", n)
	}
}

func TestKillGroupEndsTheWholeGroup(t *testing.T) {
	c := newChildren(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	child, err := c.Start([]string{"/bin/sh", "-c", "sleep 60 & echo; wait"},
		&os.ProcAttr{Files: []*os.File{nil, w}, Sys: setpgid(), Env: []string{"PATH=/usr/bin:/bin"}})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1)
	if _, err := r.Read(buf); err != nil {
		t.Fatal(err)
	}
	if err := child.KillGroup(); err != nil {
		t.Fatal(err)
	}
	if e := child.Wait(); e.Signal != 9 {
		t.Errorf("exit %+v", e)
	}
	if n, err := r.Read(buf); n != 0 || err == nil {
		t.Error("a process of the group still holds the pipe")
	}
	if err := child.KillGroup(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestWhatAnEndedChildLeavesBehindCanStillBeKilled(t *testing.T) {
	c := newChildren(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seen := make(chan proc.Exit, 1)
	child, err := c.StartThen([]string{"/bin/sh", "-c", "sleep 60 & exit 3"},
		&os.ProcAttr{Files: []*os.File{nil, w}, Sys: setpgid(), Env: []string{"PATH=/usr/bin:/bin"}},
		func(child *proc.Child, e proc.Exit) {
			if err := child.KillGroup(); err != nil {
				t.Error(err)
			}
			seen <- e
		})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if e := <-seen; e.Code != 3 || child.Wait().Code != 3 {
		t.Errorf("exit %+v, then %+v", e, child.Wait())
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("the background process still holds the pipe")
	}
}

// An os.Process that was released has the pid -1, and kill(2) takes that for every process there
// is. The test runs in a PID namespace, where these are few.
func TestANumberThatIsNoPidIsNotKilled(t *testing.T) {
	const inside = "RKT_TEST_NO_PID"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
		cmd.Env, cmd.SysProcAttr = append(os.Environ(), inside+"=1"), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	c := newChildren(t)
	defer c.Expect()() // procfs is that of another PID namespace, so c cannot own a child
	victim := exec.Command("sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = victim.Process.Kill()
		_ = victim.Wait()
	}()
	for _, pid := range []int{0, -1} {
		if _, err := c.Make(func() (int, error) { return pid, nil }); err == nil {
			t.Errorf("%d is a child", pid)
		}
	}
	if err := victim.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another process was killed: %v", err)
	}
}

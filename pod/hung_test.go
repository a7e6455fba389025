package pod

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// A stage1 that hangs cannot prevent SIGKILL from reaching its apps and execs.
// requirements.md#N6, requirements.md#T9
func TestAStage1ThatHangsDoesNotPreventSIGKILL(t *testing.T) {
	w := newWorld(t)
	w.stage1.on(abi.AppSignal, hangs)
	w.mustCreate("created", "exit 0")
	w.mustCreate("running", "exec sleep 60")
	w.mustStart("running", "")
	w.mustAddExec("running", "e", "exec sleep 60")
	w.mustStart("running", "e")
	for _, p := range [][2]string{{"running", "e"}, {"running", ""}, {"created", ""}} {
		if err := w.Kill(t.Context(), AppID(p[0]), ExecID(p[1]), int(syscall.SIGKILL), false); err != nil {
			t.Errorf("kill %q: %v", p, err)
		}
		if e := w.mustWait(p[0], p[1]); e.Code != 137 {
			t.Errorf("%q ended with %d", p, e.Code)
		}
	}
	w.mustDelete("created", "")
	w.mustDelete("running", "")
}

// The call may be given up after it has killed the process.
// requirements.md#T9
func TestSIGKILLThatAStage1DeliversAndDoesNotConfirmSucceeds(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	w.stage1.on(abi.AppSignal, func(c *fakeCall) error {
		st, err := w.Status("a", "")
		if err == nil {
			err = syscall.Kill(st.PID, syscall.SIGKILL)
		}
		w.mustWait("a", "")
		return errors.Join(errors.New("deliberate"), err)
	})
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), false); err != nil {
		t.Errorf("kill: %v", err)
	}
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), false); !errdefs.IsNotFound(err) {
		t.Errorf("kill of an app that has ended: %v", err)
	}
	w.mustDelete("a", "")
}

// requirements.md#N6
func TestAHungStage1DoesNotHoldUpOtherCalls(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("sibling", "exec sleep 60")
	w.mustStart("sibling", "")
	hold := make(chan struct{})
	w.stage1.on(abi.AppAdd, waitsFor(hold))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := w.create("slow", "exit 0"); err != nil {
			t.Errorf("create: %v", err)
		}
	})
	wait.Until(t, "app/add of the second is called", func() bool { return len(w.stage1.callsOf(abi.AppAdd)) > 1 })
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = w.Status("sibling", "")
		_, _ = w.Status("slow", "")
		_, _ = w.Pids(t.Context(), "sibling")
		_ = w.Kill(t.Context(), "sibling", "", int(syscall.SIGKILL), false)
		w.mustWait("sibling", "")
		w.mustDelete("sibling", "")
	}()
	select {
	case <-answered:
	case <-time.After(wait.Patience):
		t.Error("calls for others wait for the hung one")
	}
	close(hold)
	wg.Wait()
	w.mustDelete("slow", "")
}

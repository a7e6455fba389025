package pod

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// The exit of an app waits only for a while for an exec that is being started. If the
// stage1 takes longer, the exec has not started, whatever the stage1 says afterwards.
// requirements.md#E1
func TestAnExecWhoseStartOutlastsItsAppHasNoEventsAfterTheExitOfTheApp(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	w.mustAddExec("a", "slow", "exec sleep 60")
	hold := make(chan struct{})
	w.stage1.on(abi.Enter, waitsFor(hold))
	started := make(chan error, 1)
	go func() {
		_, err := w.Start(t.Context(), "a", "slow")
		started <- err
	}()
	wait.Until(t, "the exec is being started", func() bool { return w.stage1.called(abi.Enter) })
	if err := w.Kill(t.Context(), "a", "", killSignal, false); err != nil {
		t.Fatal(err)
	}
	if e := w.mustWait("a", ""); e.Code != 137 {
		t.Errorf("exit of the app: %+v", e)
	}
	close(hold)
	if err := <-started; !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start of the exec: %v, want FailedPrecondition", err)
	}
	if e := w.mustWait("a", "slow"); e.Code != 137 {
		t.Errorf("exit of the exec: %+v", e)
	}
	words := w.events.words()
	for _, word := range words[slices.Index(words, "exited a"):] {
		if strings.HasSuffix(word, "a/slow") {
			t.Errorf("%q follows the exit of the app: %v", word, words)
		}
	}
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "nothing of it runs", func() bool { pids, err := a.cgroup.Pids(); return err == nil && len(pids) == 0 })
	w.mustDelete("a", "slow")
	w.mustDelete("a", "")
}

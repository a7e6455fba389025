package pod

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestARefusedStepNamesTheStateThatClientsSee(t *testing.T) {
	for _, c := range []struct {
		state State
		step  step
		want  string
	}{
		{Running, stepStart, "cannot start a running process: a"},
		{Killing, stepStart, "cannot start a running process: a"},
		{Starting, stepStart, "cannot start a starting process: a"},
		{Deleting, stepStart, "cannot start a stopped process: a"},
		{Discarding, stepStart, "cannot start a discarding process: a"},
		{Created, stepPausing, "cannot pause a created process: a"},
		{Killing, stepPausing, "cannot pause container a: it is being killed"},
		{Killing, stepPaused, "cannot pause container a: it is being killed"},
		{Killing, stepResumed, "cannot resume a running process: a"},
	} {
		got, err := c.state.next(c.step, "a")
		if got != c.state || !errdefs.IsFailedPrecondition(err) || !strings.HasPrefix(err.Error(), c.want+": ") {
			t.Errorf("%s in %s: %s, %v; want %q", c.step, c.state, got, err, c.want)
		}
	}
}

func TestEveryStateButTheLastHasAWayOut(t *testing.T) {
	for s := Creating; s < Deleted; s++ {
		seen := map[State]bool{}
		var visit func(State)
		visit = func(s State) {
			if !seen[s] {
				seen[s] = true
				for _, next := range transitions[s] {
					visit(next)
				}
			}
		}
		visit(s)
		if !seen[Deleted] {
			t.Errorf("%s cannot be deleted", s)
		}
	}
}

// The outbox relies on that: if a state did not allow the exit of an exec, the exit of the
// app would be held for ever.
func TestAnExitIsAllowedWhereverThereMayBeAProcess(t *testing.T) {
	for s := Created; s < Stopped; s++ {
		if _, err := s.next(stepExited, "a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := Discarding.next(stepExited, "a"); err != nil {
		t.Error(err)
	}
}

// A Kill that comes while the app is being frozen ends the Pause.
func TestAnAppThatIsKilledWhileItIsBeingPausedIsNotPaused(t *testing.T) {
	needFreezer(t)
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.step(stepPausing); err != nil {
		t.Fatal(err)
	}
	if err := a.step(stepKill); err != nil {
		t.Fatal(err)
	}
	w.mustBe("a", "", Running)
	if err := a.pause(t.Context()); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "it is being killed") {
		t.Errorf("pause: %v", err)
	}
	if a.cgroup.Frozen() {
		t.Error("it is frozen")
	}
	if err := w.Pause(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "it is being killed") {
		t.Errorf("second pause: %v", err)
	}
	w.end("a")
}

func TestNoStartComesBetweenTheDeleteOfACreatedAppAndItsEnd(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 0")
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.step(stepDelete); err != nil {
		t.Fatal(err)
	}
	w.mustBe("a", "", Created)
	if _, err := w.Start(t.Context(), "a", ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start: %v", err)
	}
	if err := a.step(stepUndelete); err != nil {
		t.Fatal(err)
	}
	w.mustStart("a", "")
	w.mustWait("a", "")
	w.mustDelete("a", "")
}

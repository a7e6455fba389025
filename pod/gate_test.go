package pod

import (
	"errors"
	"sync"
	"testing"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func admitted() error { return nil }

func TestAGateIsDrainedWhenTheLastExecHasLeft(t *testing.T) {
	var g gate
	if !isClosed(g.drained()) {
		t.Error("no exec has entered, and the gate is not drained")
	}
	for range 2 {
		if err := g.enter(admitted); err != nil {
			t.Fatal(err)
		}
	}
	first, second := g.drained(), g.drained()
	g.leave()
	if isClosed(first) || isClosed(second) {
		t.Error("drained with one exec inside")
	}
	g.leave()
	if !isClosed(first) || !isClosed(second) {
		t.Error("not drained, and nobody is inside")
	}
	if err := g.enter(admitted); err != nil {
		t.Errorf("after it was drained: %v", err)
	}
	if isClosed(g.drained()) {
		t.Error("a drained gate that was entered again counts as drained")
	}
}

func TestAnExecThatIsNotAdmittedIsNotInside(t *testing.T) {
	var g gate
	refused := errors.New("deliberate")
	if err := g.enter(func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("enter: %v", err)
	}
	if !isClosed(g.drained()) {
		t.Error("the refused exec is inside")
	}
}

func TestAClosedGateLetsNobodyInAndEverybodyOut(t *testing.T) {
	var g gate
	if err := g.enter(admitted); err != nil {
		t.Fatal(err)
	}
	if !g.close() {
		t.Error("the first close found the gate closed")
	}
	if g.close() {
		t.Error("the second close found the gate open")
	}
	err := g.enter(func() error { t.Error("admit was called"); return nil })
	if !errors.Is(err, errGateClosed) {
		t.Errorf("enter: %v", err)
	}
	drained := g.drained()
	if isClosed(drained) {
		t.Error("drained with one exec inside")
	}
	g.leave()
	if !isClosed(drained) {
		t.Error("not drained, and nobody is inside")
	}
}

// The way in which a Pause uses the gate.
func TestWhoChangesTheStateAndThenWaitsMeetsNoExec(t *testing.T) {
	for range 200 {
		var g gate
		var mu sync.Mutex
		paused := false
		admit := func() error {
			mu.Lock()
			defer mu.Unlock()
			if paused {
				return errors.New("paused")
			}
			return nil
		}
		inside := 0
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for g.enter(admit) == nil {
					mu.Lock()
					inside++
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
					g.leave()
				}
			})
		}
		mu.Lock()
		paused = true
		mu.Unlock()
		<-g.drained()
		mu.Lock()
		if inside != 0 {
			t.Errorf("%d execs are inside", inside)
		}
		mu.Unlock()
		all.Wait()
	}
}

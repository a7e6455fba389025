package pod

import (
	"errors"
	"sync"
	"testing"
)

func admitted() error { return nil }

func TestAGateIsDrainedWhenTheLastExecHasLeft(t *testing.T) {
	var g gate
	if !g.current().drained() {
		t.Error("no exec has entered, and the gate is not drained")
	}
	for range 2 {
		if err := g.enter(admitted); err != nil {
			t.Fatal(err)
		}
	}
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			if s, err := g.until(t.Context(), gateState.drained); err != nil || s.inside != 0 {
				t.Errorf("waited until %d execs were inside: %v", s.inside, err)
			}
		})
	}
	g.leave()
	if g.current().drained() {
		t.Error("drained with one exec inside")
	}
	g.leave()
	waiting.Wait()
	if err := g.enter(admitted); err != nil {
		t.Errorf("after it was drained: %v", err)
	}
	if g.current().drained() {
		t.Error("a drained gate that was entered again counts as drained")
	}
}

func TestAnExecThatIsNotAdmittedIsNotInside(t *testing.T) {
	var g gate
	refused := errors.New("deliberate")
	if err := g.enter(func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("enter: %v", err)
	}
	if !g.current().drained() {
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
	if g.current().drained() {
		t.Error("drained with one exec inside")
	}
	g.leave()
	if !g.current().drained() {
		t.Error("not drained, and no exec is inside")
	}
	if !errors.Is(g.enter(admitted), errGateClosed) {
		t.Error("it has opened again")
	}
}

// The test uses the gate as a Pause does.
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
		g.await(gateState.drained)
		mu.Lock()
		if inside != 0 {
			t.Errorf("%d execs are inside", inside)
		}
		mu.Unlock()
		all.Wait()
	}
}

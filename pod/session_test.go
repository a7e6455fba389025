package pod

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// took takes steps and returns how many of them were allowed.
func (s *session) took(steps ...sessionStep) (n int) {
	for _, t := range steps {
		if s.step(t) {
			n++
		}
	}
	return n
}

func TestEveryStateOfASessionLeadsToItsEnd(t *testing.T) {
	for s := sessionMaking; s < sessionGone; s++ {
		seen := map[sessionState]bool{}
		var visit func(sessionState)
		visit = func(s sessionState) {
			if !seen[s] {
				seen[s] = true
				for _, next := range sessionTransitions[s] {
					visit(next)
				}
			}
		}
		visit(s)
		if !seen[sessionGone] {
			t.Errorf("%s does not end", s)
		}
		if s.ends() {
			for s := range seen {
				if !s.ends() {
					t.Errorf("a session that ends goes back to %s", s)
				}
			}
		}
	}
}

func TestOneCallerEndsASession(t *testing.T) {
	for _, before := range [][]sessionStep{
		{sessionFail},
		{sessionMake, sessionStart},
		{sessionMake, sessionStart, sessionRuns},
		{sessionMake, sessionStart, sessionRuns, sessionStage1Ended},
	} {
		s := newSession(nil, byApps{}, origin{})
		if n := s.took(before...); n != len(before) {
			t.Errorf("%v: %d were allowed", before, n)
		}
		if n := s.took(sessionEnd, sessionEnd, sessionEnd); n != 1 {
			t.Errorf("%v: %d callers end the session", before, n)
		}
	}
}

func TestEveryStepOfASessionWakesUpAllThatWait(t *testing.T) {
	s := newSession(nil, byApps{}, origin{})
	var all sync.WaitGroup
	for _, reached := range []func(sessionState) bool{
		sessionState.dirDecided, sessionState.startDecided, sessionState.stage1Ended, sessionState.ends,
	} {
		for range 3 {
			all.Go(func() {
				if state, err := s.until(t.Context(), reached); err != nil || !reached(state) {
					t.Errorf("%s, %v", state, err)
				}
			})
		}
	}
	for _, step := range []sessionStep{sessionMake, sessionStart, sessionRuns, sessionEnd, sessionStage1Ended, sessionStop, sessionOver} {
		if !s.step(step) {
			t.Errorf("%s is refused", step)
		}
		time.Sleep(time.Millisecond)
	}
	all.Wait()
}

func TestWhoWaitsForASessionIsNotHeldUpLongerThanItsClient(t *testing.T) {
	s := newSession(nil, byApps{}, origin{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	s.fail(errors.New("deliberate"))
	if err := s.wait(ctx); err == nil || err.Error() != "deliberate" {
		t.Errorf("wait for a start that has failed: %v", err)
	}
	if s.alive() {
		t.Error("its stage1 runs")
	}
}

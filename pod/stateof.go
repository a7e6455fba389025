package pod

import (
	"context"
	"slices"
	"sync"
)

// stateOf is a state. It wakes up callers that wait for another state. The type that
// embeds it has the table of its steps. The zero value is in the first state.
type stateOf[S comparable] struct {
	// mu guards the state, and those fields that the embedding type declares as such.
	mu      sync.Mutex
	state   S
	changed chan struct{} // closed by the next step; nil unless a caller waits
}

// moveLocked changes the state.
func (s *stateOf[S]) moveLocked(to S) {
	s.state = to
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// current returns the state. Clients may see another one.
func (s *stateOf[S]) current() S {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// in reports whether the current state is one of states.
func (s *stateOf[S]) in(states ...S) bool { return slices.Contains(states, s.current()) }

// until waits for a state, at most until ctx ends, and returns the state at that time.
func (s *stateOf[S]) until(ctx context.Context, reached func(S) bool) (S, error) {
	for {
		s.mu.Lock()
		state := s.state
		if reached(state) {
			s.mu.Unlock()
			return state, nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

// await is until for a state that is certain to come.
func (s *stateOf[S]) await(reached func(S) bool) S {
	state, _ := s.until(context.Background(), reached)
	return state
}

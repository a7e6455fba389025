package pod

import (
	"errors"
)

// errGateClosed is the answer of a closed gate.
var errGateClosed = errors.New("the gate is closed")

// gate counts the execs of an app that are being started. A Pause and the exit of
// the app wait until it is drained. The zero value is open.
type gate struct{ stateOf[gateState] }

// gateState changes by enter, leave and close.
type gateState struct {
	inside int
	closed bool
}

// drained reports whether no exec is inside.
func (s gateState) drained() bool { return s.inside == 0 }

// enter lets an exec in, unless the gate is closed or admit returns an error. No
// exec is counted before admit has returned: a caller that first changes the state
// which admit checks, and then waits until the gate is drained, waits for every exec
// that was admitted in the old state and for no other.
func (g *gate) enter(admit func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state.closed {
		return errGateClosed
	}
	if err := admit(); err != nil {
		return err
	}
	g.moveLocked(gateState{inside: g.state.inside + 1})
	return nil
}

// leave is called once for each enter that succeeded, when the start has ended.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moveLocked(gateState{inside: g.state.inside - 1, closed: g.state.closed})
}

// close lets no further exec in. It reports whether the gate was open.
func (g *gate) close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := !g.state.closed
	g.moveLocked(gateState{inside: g.state.inside, closed: true})
	return open
}

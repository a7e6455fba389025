package pod

import (
	"errors"
)

// errGateClosed is the error of enter when the gate is closed.
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

// enter lets an exec in, unless the gate is closed or admit returns an error. The
// gate is locked from before admit until the exec is counted. So if a caller changes
// the state that admit checks, and then waits until the gate is drained, it waits
// for exactly those execs that were admitted in the old state.
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

// leave must be called once for each successful enter, when the start of the exec
// has ended.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moveLocked(gateState{inside: g.state.inside - 1, closed: g.state.closed})
}

// close closes the gate for further execs. It reports whether the gate was open
// before.
func (g *gate) close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := !g.state.closed
	g.moveLocked(gateState{inside: g.state.inside, closed: true})
	return open
}

package pod

import (
	"errors"
	"sync"
)

// errGateClosed is the answer of a closed gate.
var errGateClosed = errors.New("the gate is closed")

// gate counts the execs of an app that are being started. A Pause and the exit of
// the app wait until there is none. The zero value is open.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // if a caller waits: closed when inside falls to 0
}

// enter lets an exec in, unless the gate is closed or admit returns an error. No
// exec is counted before admit has returned: a caller that first changes the state
// which admit checks, and then calls drained, waits for every exec that was
// admitted in the old state and for no other.
func (g *gate) enter(admit func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errGateClosed
	}
	if err := admit(); err != nil {
		return err
	}
	g.inside++
	return nil
}

// leave is called once for each enter that succeeded, when the start has ended.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// close lets no further exec in. It reports whether the gate was open.
func (g *gate) close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := !g.closed
	g.closed = true
	return open
}

// drained returns a channel that is closed as soon as no exec is inside.
func (g *gate) drained() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	empty := g.empty
	if empty == nil {
		empty = make(chan struct{})
		g.empty = empty
	}
	if g.inside == 0 {
		close(empty)
		g.empty = nil
	}
	return empty
}

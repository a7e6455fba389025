package channel

import (
	"io"
	"sync"
)

// maxGathered is how much a gatherer takes before Write waits for the connection, in bytes.
const maxGathered = 64 << 10

// gatherer gathers what is written while the connection is busy, or before its goroutine runs, and
// writes it at once. yamux writes the header and the body of each frame on their own, and each write to
// the port is an interrupt at the other end.
type gatherer struct {
	io.ReadWriteCloser

	mu      sync.Mutex
	changed sync.Cond // of the fields below
	pending []byte
	err     error // of the connection; later writes return it
}

// gather returns a connection that gathers writes. An error of a write is that of a later one.
func gather(conn io.ReadWriteCloser) *gatherer {
	g := &gatherer{ReadWriteCloser: conn}
	g.changed.L = &g.mu
	go g.run()
	return g
}

func (g *gatherer) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.pending) >= maxGathered && g.err == nil {
		g.changed.Wait()
	}
	if g.err != nil {
		return 0, g.err
	}
	g.pending = append(g.pending, b...)
	g.changed.Broadcast()
	return len(b), nil
}

// Close closes the connection. What was not yet written to it is dropped.
func (g *gatherer) Close() error {
	g.fail(io.ErrClosedPipe)
	return g.ReadWriteCloser.Close()
}

func (g *gatherer) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.changed.Broadcast()
}

func (g *gatherer) run() {
	var writing []byte
	for {
		g.mu.Lock()
		for len(g.pending) == 0 && g.err == nil {
			g.changed.Wait()
		}
		if g.err != nil {
			g.mu.Unlock()
			return
		}
		writing, g.pending = g.pending, writing[:0]
		g.changed.Broadcast()
		g.mu.Unlock()
		if _, err := g.ReadWriteCloser.Write(writing); err != nil {
			g.fail(err)
			return
		}
	}
}

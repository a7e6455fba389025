package manager

import (
	"context"
	"strings"
	"sync"
)

// calls counts the calls in progress.
type calls struct {
	mu        sync.Mutex
	working   int           // calls in progress that end by themselves, without shutdowns
	shutdowns int           // calls that ask the server to end; they wait for the others
	ended     chan struct{} // closed when the next call ends; nil if await does not wait
	created   bool          // a client has called Create or CreateSandbox
}

func newCalls() *calls { return &calls{} }

// methodName returns the last part of a full method name.
func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }

// isShutdown reports whether a method asks the server to end.
func isShutdown(full string) bool {
	name := methodName(full)
	return name == "Shutdown" || name == "ShutdownSandbox"
}

// begin counts a call until done is called. It does not count calls that wait for an
// exit, because these may last as long as the app.
func (c *calls) begin(method string) (done func()) {
	name := methodName(method)
	if name == "Wait" || name == "WaitSandbox" {
		return func() {}
	}
	count := &c.working
	if isShutdown(method) {
		count = &c.shutdowns
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
	if name == "Create" || name == "CreateSandbox" {
		c.created = true
	}
	return func() { c.end(count) }
}

func (c *calls) end(count *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count--
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
}

// anyCreated reports whether a client has called Create or CreateSandbox.
func (c *calls) anyCreated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created
}

// drain waits until no call is in progress or ctx ends.
func (c *calls) drain(ctx context.Context) {
	c.await(ctx, func() bool { return c.working+c.shutdowns == 0 })
}

// drainOthers waits until only calls that ask the server to end are in progress, or ctx
// ends.
func (c *calls) drainOthers(ctx context.Context) {
	c.await(ctx, func() bool { return c.working == 0 })
}

// await waits until idle returns true or ctx ends. It calls idle with c.mu held.
func (c *calls) await(ctx context.Context, idle func() bool) {
	for {
		ended := c.next(idle)
		if ended == nil {
			return
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// next returns a channel that the next end of a call closes, or nil if idle returns true.
func (c *calls) next(idle func() bool) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if idle() {
		return nil
	}
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	return c.ended
}

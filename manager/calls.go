package manager

import (
	"context"
	"strings"
	"sync"
)

// calls counts what is in progress.
type calls struct {
	mu        sync.Mutex
	working   int           // calls that end by themselves, without the following ones
	shutdowns int           // calls that ask the server to end, which wait for the others
	ended     chan struct{} // closed at the next end of a call; nil if nobody waits for one
	created   bool          // a client has tried to create something
}

func newCalls() *calls { return &calls{} }

// methodName returns the last part of a full method name.
func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }

// isShutdown reports whether a method asks the server to end.
func isShutdown(full string) bool {
	name := methodName(full)
	return name == "Shutdown" || name == "ShutdownSandbox"
}

// begin notes a call, and the function it returns notes its end. Calls that wait
// for an exit are not counted: they may last as long as the app.
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

// anyCreated tells whether there is, was or may be a container.
func (c *calls) anyCreated() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.created
}

// drain returns when no call is in progress, or with ctx.
func (c *calls) drain(ctx context.Context) {
	c.await(ctx, func() bool { return c.working+c.shutdowns == 0 })
}

// drainOthers returns when no call is in progress but those that ask the server to
// end, or with ctx.
func (c *calls) drainOthers(ctx context.Context) {
	c.await(ctx, func() bool { return c.working == 0 })
}

// await returns when idle, which is called with c.mu held, says so, or with ctx.
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

// next returns a channel that the next end of a call closes, or nil if idle.
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

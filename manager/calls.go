package manager

import (
	"context"
	"strings"
	"sync"
)

// calls counts what is in progress.
type calls struct {
	mu      sync.Mutex
	active  int           // calls that end by themselves
	idle    chan struct{} // made by drain, closed when active is zero
	created bool          // a client has tried to create something
}

func newCalls() *calls { return &calls{} }

// begin notes a call, and the function it returns notes its end. Calls that wait
// for an exit are not counted: they may last as long as the app.
func (c *calls) begin(method string) (done func()) {
	name := method[strings.LastIndexByte(method, '/')+1:]
	if name == "Wait" || name == "WaitSandbox" {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active++
	if name == "Create" || name == "CreateSandbox" {
		c.created = true
	}
	return c.end
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if c.active == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
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
	c.mu.Lock()
	if c.active == 0 {
		c.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	c.idle = idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

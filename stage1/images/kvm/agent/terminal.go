package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// processID names a process: an app's first one, whose exec is "", or an exec.
type processID struct{ app, exec string }

// terminals has the terminals of processes, from before a process exists until its output has ended.
type terminals struct {
	mu  sync.Mutex
	all map[processID]*stream.Terminal
}

// keep keeps the master of the terminal of a process that is being made. An earlier process of that name has
// ended.
func (t *terminals) keep(r *abi.Request, master *os.File) error {
	own, err := proc.Duplicate(master)
	if err != nil {
		return fmt.Errorf("keep the terminal: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[processID]*stream.Terminal{}
	}
	t.all[processID{r.App, r.Exec}] = &stream.Terminal{Master: own}
	return nil
}

// of returns the terminal of a process, or nil.
func (t *terminals) of(id processID) *stream.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[id]
}

// close closes a terminal, and forgets it.
func (t *terminals) close(id processID, terminal *stream.Terminal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[id] == terminal {
		delete(t.all, id)
	}
	terminal.Master.Close()
}

// end is called when a process has ended: its terminal ends with the output that is in it.
func (t *terminals) end(id processID) {
	if terminal := t.of(id); terminal != nil {
		terminal.End()
	}
}

// endAll closes the terminals of an app.
func (t *terminals) endAll(app string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, terminal := range t.all {
		if id.app == app {
			terminal.Master.Close()
			delete(t.all, id)
		}
	}
}

// resize sets the size of a terminal. One that has ended has no size.
func (t *terminals) resize(r *channel.Resize) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	terminal := t.all[processID{r.App, r.Exec}]
	if terminal == nil {
		return nil
	}
	return proc.Control(terminal.Master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: r.Height, Col: r.Width})
	})
}

// withTerminal makes a process with a terminal, whose input and output are s.
func (a *agent) withTerminal(ctx context.Context, asked *serve.Asked, s data) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	asked.Stdio = [3]*os.File{null, null, null}
	id := processID{asked.App, asked.Exec}
	earlier := a.terminals.of(id)
	err = a.pod.Dispatch(ctx, asked)
	terminal := a.terminals.of(id)
	if terminal == earlier {
		terminal = nil
	}
	switch {
	case err == nil && terminal == nil:
		return fmt.Errorf("app %s: the process has got no terminal", asked.App)
	case err != nil && terminal != nil:
		a.terminals.close(id, terminal)
		return err
	case err != nil:
		return err
	}
	a.terminals.carry(id, terminal, s)
	return nil
}

// carry begins to carry a terminal's input and output.
func (t *terminals) carry(id processID, terminal *stream.Terminal, s data) {
	hangUp := func() { t.close(id, terminal) }
	go s.feed(terminal.Master, hangUp) // the client has hung up: so does the terminal
	go s.fetch(terminal, hangUp)
}

package supervisor

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// chronicle is told of the ends of children whose verdict is recorded.
type chronicle interface {
	// record is called while the process is a zombie.
	record(name, abi.Status)
	// announce is called after it was reaped.
	announce(name, abi.Status)
}

// family is all children of this process: those that were made, and the orphans
// that a subreaper inherits. One goroutine reaps them all, so that no pid is
// given back behind the back of whoever uses it.
type family struct {
	chronicle chronicle
	kick      chan struct{} // a reason other than SIGCHLD to look at the children

	mu       sync.Mutex
	children map[int]*child
	births   int // children that are being made: unknown ones may be theirs
}

func newFamily(c chronicle) *family {
	return &family{chronicle: c, kick: make(chan struct{}, 1), children: map[int]*child{}}
}

// start makes a child. Its verdict is undecided: the caller calls keep or drop.
func (f *family) start(ctx context.Context, n name, p *fork.Process) (*child, error) {
	f.mu.Lock()
	f.births++
	f.mu.Unlock()
	defer f.look()
	pid, err := fork.Start(ctx, p)

	f.mu.Lock()
	defer f.mu.Unlock()
	f.births--
	if err != nil {
		return nil, err
	}
	return f.registerLocked(n, pid)
}

// registerLocked makes a process known, whose verdict is undecided.
func (f *family) registerLocked(n name, pid int) (*child, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // an orphan like others from here on
		return nil, fmt.Errorf("open a pidfd of process %d: %w", pid, err)
	}
	c := &child{pid: pid, name: n, done: make(chan struct{}), pidfd: os.NewFile(uintptr(fd), "pidfd")}
	f.children[pid] = c
	return c, nil
}

// keep has a child's exit recorded and announced, also one that was before.
func (f *family) keep(c *child) { f.decide(c, recorded) }

// drop kills a child and returns when it is gone. Nobody else is told.
func (f *family) drop(c *child) abi.Status {
	f.decide(c, dropped)
	c.kill()
	return c.end()
}

func (f *family) decide(c *child, v verdict) {
	c.mu.Lock()
	c.verdict = v
	c.mu.Unlock()
	f.look()
}

// look has the children looked at soon.
func (f *family) look() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// reapAll reaps children until ctx ends. sigchld must not lose the last signal.
func (f *family) reapAll(ctx context.Context, sigchld <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-sigchld:
		case <-f.kick:
		}
		for _, c := range f.all() {
			f.bury(c)
		}
		f.buryOrphans()
	}
}

// all returns the children that are known.
func (f *family) all() []*child {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*child, 0, len(f.children))
	for _, c := range f.children {
		all = append(all, c)
	}
	return all
}

// bury reaps a child if it has ended and its verdict is known.
func (f *family) bury(c *child) {
	v := c.decided()
	if v == undecided {
		return
	}
	pid, status := peek(c.pid)
	if pid == 0 {
		return
	}
	if v == recorded {
		f.chronicle.record(c.name, status)
	}
	f.mu.Lock()
	delete(f.children, c.pid)
	f.mu.Unlock()
	c.reap(status)
	if v == recorded {
		f.chronicle.announce(c.name, status)
	}
	close(c.done)
}

// buryOrphans reaps what nobody knows. It stops at a child that is known, or
// may be soon: that one brings the reaper back, by its signal, by its verdict
// or by the end of its birth.
func (f *family) buryOrphans() {
	for {
		pid, _ := peek(0)
		if pid == 0 {
			return
		}
		f.mu.Lock()
		stranger := f.children[pid] == nil && f.births == 0
		f.mu.Unlock()
		if !stranger {
			return
		}
		reap(pid)
	}
}

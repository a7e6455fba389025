package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SetSubreaper makes this process inherit the orphans among its descendants.
func SetSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a child subreaper: %w", err)
	}
	return nil
}

// Children keeps this process's children: those that it starts, and orphans
// that it inherits if it is a subreaper. There is one per process.
//
// Code that starts processes by other means (os/exec, a library that mounts
// with a helper) brackets that with Expect, or their children are taken for
// unknown orphans.
type Children struct {
	mu    sync.Mutex
	owned map[int]bool // started or adopted, not reaped yet
	held  int          // starts and Expects under way: unknown children may be theirs

	kick    chan struct{} // a reason other than SIGCHLD to look again
	sigchld chan os.Signal
	stop    chan struct{}
	stopped chan struct{}
	waits   sync.WaitGroup // one per owned child
}

// NewChildren starts the reaping of unknown orphans. Close ends it.
func NewChildren() *Children {
	c := &Children{
		owned:   map[int]bool{},
		kick:    make(chan struct{}, 1),
		sigchld: make(chan os.Signal, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	signal.Notify(c.sigchld, unix.SIGCHLD)
	go c.run()
	// Children that ended before the signal was caught.
	c.look()
	return c
}

// Close stops reaping and waits until every started and adopted child has been
// reaped, or ctx is done.
func (c *Children) Close(ctx context.Context) error {
	signal.Stop(c.sigchld)
	close(c.stop)
	<-c.stopped
	done := make(chan struct{})
	go func() {
		c.waits.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("children of process %d still run: %w", os.Getpid(), context.Cause(ctx))
	}
}

func (c *Children) run() {
	defer close(c.stopped)
	for {
		select {
		case <-c.sigchld:
		case <-c.kick:
		case <-c.stop:
			return
		}
		c.sweep()
	}
}

// look makes the sweep happen once more.
func (c *Children) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// sweep reaps the unknown children that have ended. The kernel shows one ended
// child at a time, always the same one until it is reaped, so a child that has
// an owner hides those behind it; release and hold's end look again.
func (c *Children) sweep() {
	for {
		info, ok, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if err != nil || !ok {
			return // ECHILD: no children at all
		}
		if !c.reapUnknown(int(info.pid)) {
			return
		}
	}
}

// reapUnknown reaps one ended child unless it has an owner or may be about to
// get one. The lock is held over the system call, which does not wait: between
// the question and the reaping nobody may come to own the pid.
func (c *Children) reapUnknown(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held > 0 || c.owned[pid] {
		return false
	}
	_, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG)
	return err == nil || errors.Is(err, unix.ECHILD)
}

// Expect keeps unknown children that end from being reaped until the returned
// function is called: an orphan may die before anybody can Adopt it. Calls
// nest; release may be called more than once.
func (c *Children) Expect() (release func()) {
	c.mu.Lock()
	c.held++
	c.mu.Unlock()
	return sync.OnceFunc(func() {
		c.mu.Lock()
		c.held--
		c.mu.Unlock()
		c.look()
	})
}

// release gives up a child that was reaped.
func (c *Children) release(pid int) {
	c.mu.Lock()
	delete(c.owned, pid)
	c.mu.Unlock()
	c.look()
}

// own makes a child this package's to reap.
func (c *Children) own(pid int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned[pid] {
		return fmt.Errorf("process %d is waited for already", pid)
	}
	c.owned[pid] = true
	c.waits.Add(1)
	return nil
}

// ErrNotChild says that a process is not a child of this one.
var ErrNotChild = errors.New("not a child of this process")

// Adopt takes over an orphan that became a child of this process. When it has
// ended, record is called, then the process is reaped, then ended is called;
// either may be nil. Both run on a goroutine of their own, one per child, which
// Close waits for. A start time of 0 is not checked.
//
// The error unwraps to ErrGone if the process was reaped already (hold an
// Expect from before it was made), and to ErrNotChild if its parent is another
// process.
func (c *Children) Adopt(pid int, startTime uint64, record, ended func(Exit)) error {
	release := c.Expect() // from here on the sweep does not take it
	defer release()
	p, err := Open(pid, startTime)
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	if _, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT); err != nil {
		_ = p.Close()
		if errors.Is(err, unix.ECHILD) {
			err = ErrNotChild
		}
		return fmt.Errorf("adopt process %d: %w", pid, err)
	}
	if err := c.own(pid); err != nil {
		_ = p.Close()
		return fmt.Errorf("adopt: %w", err)
	}
	go func() {
		defer c.waits.Done()
		_ = waitReadable(p.fd)
		_ = p.Close()
		exit := reap(pid, record)
		c.release(pid)
		if ended != nil {
			ended(exit)
		}
	}()
	return nil
}

// reap records the end of an ended child and then reaps it. The pid cannot be
// another process's: an unreaped child keeps it.
func reap(pid int, record func(Exit)) Exit {
	info, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	exit := info.exit(time.Now())
	if err != nil {
		// Somebody stole it. What is known is that it has ended.
		exit = Exit{Code: 255, Time: time.Now()}
	}
	if record != nil {
		record(exit)
	}
	_, _, _ = waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG)
	return exit
}

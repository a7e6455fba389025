package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SetSubreaper makes this process the parent of descendants whose own parent has ended.
func SetSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a child subreaper: %w", err)
	}
	return nil
}

// Children manages the children of this process: those that it starts, and those that it
// inherits as a subreaper. There is one Children per process. Code that starts processes by
// other means (os/exec, or a library that mounts with a helper) must call Expect before, or
// Children reaps these processes as unknown ones.
type Children struct {
	mu    sync.Mutex
	owned map[int]*Child // started or taken, and not reaped yet
	later map[int]*later // processes to adopt when they become children of this process
	// laterInTurn has them in the order in which AdoptLater looks whether they were reaped.
	laterInTurn []*later
	held        int // starts and Expects in progress: an unknown child may belong to one

	kick    chan struct{} // receives when there is a reason other than SIGCHLD to sweep
	sigchld chan os.Signal
	stop    chan struct{}
	stopped chan struct{}
	waits   sync.WaitGroup // one for each owned child, until its functions have returned
}

// NewChildren starts the reaping of unknown children. Close ends it.
func NewChildren() *Children {
	c := &Children{
		owned:   map[int]*Child{},
		later:   map[int]*later{},
		kick:    make(chan struct{}, 1),
		sigchld: make(chan os.Signal, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	signal.Notify(c.sigchld, unix.SIGCHLD)
	go c.run()
	c.look() // for children that ended before the signal was caught
	return c
}

// Close waits until every child that was made or taken is reaped, or until ctx is done. After
// that, no child is reaped any more.
func (c *Children) Close(ctx context.Context) error {
	defer func() {
		signal.Stop(c.sigchld)
		close(c.stop)
		<-c.stopped
	}()
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

// look requests another sweep.
func (c *Children) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// sweep reaps the unknown children that have ended, and tells the others of their end. The kernel
// reports one ended child at a time, and the same one until it is reaped. So a child with an owner
// hides the next ones. That is why each owned child is then looked at, and why sweep is called again
// when such a child was reaped, and when an Expect ends. Other code may have reaped an owned child,
// so each is also looked at if no child that has ended is left.
func (c *Children) sweep() {
	for {
		info, ok, err := waitid(unix.P_ALL, 0, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if err != nil || !ok || !c.reapUnknown(int(info.pid)) { // ECHILD: no children at all
			c.findEnds()
			return
		}
	}
}

// findEnds looks which of the owned children have ended.
func (c *Children) findEnds() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pid, child := range c.owned {
		if child.over {
			continue
		}
		info, ok, err := endOf(pid)
		if err == nil && !ok {
			continue
		}
		child.over, child.exit = true, info.exit(time.Now())
		if err != nil { // other code has reaped the child, so its exit code is lost
			child.exit = Exit{Code: 255, Time: time.Now()}
		}
		go c.end(child)
	}
}

// reapUnknown reaps one ended child unless it has an owner or may be about to get one. It
// holds the lock during the system call, which does not wait, so that the pid gets no owner
// before it is reaped.
func (c *Children) reapUnknown(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned[pid] != nil || c.adoptLaterLocked(pid) || c.held > 0 {
		return false
	}
	_, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG)
	return err == nil || errors.Is(err, unix.ECHILD)
}

// Expect prevents the reaping of unknown children until release is called, because a child
// may end before the caller can call Take or Adopt for it. Calls nest. release may be
// called more than once.
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

// endOf returns how a child has ended, without reaping it; ok is false if it has not ended. For a
// child that this process traces, waitid(2) also reports stops.
func endOf(pid int) (info childInfo, ok bool, err error) {
	info, ok, err = waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	return info, ok && info.ended(), err
}

// Make calls start, which returns the pid of a new child of this process that no other code
// waits for. The child is not reaped before its verdict, by Decide or Drop, so its exit can
// be recorded even if the child ends at once.
func (c *Children) Make(start func() (pid int, err error)) (*Child, error) {
	// start may wait for children of its own, which sweep must not reap: os.StartProcess
	// waits for a child whose exec has failed.
	defer c.Expect()()
	pid, err := start()
	if err != nil {
		return nil, err
	}
	if pid < 1 { // to kill(2), these are all processes of the machine, or of a group
		return nil, fmt.Errorf("start a process: %d is no pid of one", pid)
	}
	child, err := c.take(pid, 0)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // without an owner, it is reaped as an unknown child
		return nil, fmt.Errorf("start process %d: %w", pid, err)
	}
	return child, nil
}

// ErrNotChild says that a process is not a child of this one.
var ErrNotChild = errors.New("not a child of this process")

// Take takes over a process that this one has inherited, as if Make had made it. A start
// time of 0 is not checked. The error unwraps to ErrGone if the process was reaped already;
// to prevent that, call Expect before the process is made. It unwraps to ErrNotChild if the
// process has another parent.
func (c *Children) Take(pid int, startTime uint64) (*Child, error) {
	defer c.Expect()()
	child, err := c.take(pid, startTime)
	if err != nil {
		return nil, fmt.Errorf("adopt process %d: %w", pid, err)
	}
	return child, nil
}

// Adopt is Take followed by Decide.
func (c *Children) Adopt(pid int, startTime uint64, record, ended func(Exit)) error {
	child, err := c.Take(pid, startTime)
	if err == nil {
		child.Decide(record, ended)
	}
	return err
}

// All returns the children that were made or taken, and not reaped yet.
func (c *Children) All() []*Child {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.owned))
}

func (c *Children) take(pid int, startTime uint64) (*Child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked(pid, startTime)
}

// takeLocked makes c the owner of a child. Children reaps no process while the lock is held, so
// that the pid of a child that exists is not reused.
func (c *Children) takeLocked(pid int, startTime uint64) (*Child, error) {
	if c.owned[pid] != nil {
		return nil, errors.New("waited for already")
	}
	_, _, notOurs := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	start, err := StartTime(pid)
	if err != nil {
		return nil, err
	}
	if startTime != 0 && start != startTime {
		return nil, fmt.Errorf("the pid is of a process started at %d, not at %d: %w", start, startTime, ErrGone)
	}
	if errors.Is(notOurs, unix.ECHILD) {
		return nil, ErrNotChild
	}
	if notOurs != nil {
		return nil, notOurs
	}
	child := &Child{pid: pid, start: start, done: make(chan struct{}), decided: make(chan struct{})}
	c.owned[pid] = child
	c.waits.Add(1)
	return child, nil
}

// end waits for the verdict on a child that has ended, and carries it out.
func (c *Children) end(child *Child) {
	defer c.waits.Done()
	<-child.decided
	if child.record != nil {
		child.record(child.exit)
	}
	c.reap(child)
	c.look()
	if child.ended != nil {
		child.ended(child.exit)
	}
	close(child.done)
}

// reap reaps an ended child. If a later process gets its pid, that process is unknown.
func (c *Children) reap(child *Child) {
	c.mu.Lock()
	defer c.mu.Unlock()
	child.mu.Lock()
	defer child.mu.Unlock()
	_, _, _ = waitid(unix.P_PID, child.pid, unix.WEXITED|unix.WNOHANG)
	delete(c.owned, child.pid)
	child.reaped = true
}

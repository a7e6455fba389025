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
	waits   sync.WaitGroup // one for each owned child
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

// Close stops the reaping of unknown children. It waits until every other child was reaped,
// or until ctx is done.
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

// look requests another sweep.
func (c *Children) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// sweep reaps the unknown children that have ended. The kernel reports one ended child at a
// time, and the same one until it is reaped. So a child with an owner hides the next ones.
// That is why sweep is called again when such a child was reaped, and when an Expect ends.
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
	p, err := Open(pid, 0)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // without an owner, it is reaped as an unknown child
		return nil, fmt.Errorf("start process %d: %w", pid, err)
	}
	return c.own(p)
}

// ErrNotChild says that a process is not a child of this one.
var ErrNotChild = errors.New("not a child of this process")

// Take takes over a process that this one has inherited, as if Make had made it. A start
// time of 0 is not checked. The error unwraps to ErrGone if the process was reaped already;
// to prevent that, call Expect before the process is made. It unwraps to ErrNotChild if the
// process has another parent.
func (c *Children) Take(pid int, startTime uint64) (*Child, error) {
	defer c.Expect()()
	p, err := Open(pid, startTime)
	if err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	if _, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT); err != nil {
		_ = p.Close()
		if errors.Is(err, unix.ECHILD) {
			err = ErrNotChild
		}
		return nil, fmt.Errorf("adopt process %d: %w", pid, err)
	}
	return c.own(p)
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

// own makes c the owner of a process.
func (c *Children) own(p *Process) (*Child, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ownLocked(p)
}

func (c *Children) ownLocked(p *Process) (*Child, error) {
	if c.owned[p.pid] != nil {
		_ = p.Close()
		return nil, fmt.Errorf("process %d is waited for already", p.pid)
	}
	child := &Child{p: p, done: make(chan struct{}), decided: make(chan struct{})}
	c.owned[p.pid] = child
	c.waits.Go(func() { c.await(child) })
	return child, nil
}

// await waits for the end of a child and its verdict, and carries the verdict out.
func (c *Children) await(child *Child) {
	_ = waitReadable(child.p.fd)
	<-child.decided
	exit := peek(child.p.pid)
	if child.record != nil {
		child.record(exit)
	}
	c.reap(child, exit)
	c.look()
	if child.ended != nil {
		child.ended(exit)
	}
	close(child.done)
}

// peek returns how a child has ended, without reaping it. It may wait for the child's
// tracer, which the kernel notifies first.
func peek(pid int) Exit {
	info, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOWAIT)
	if err != nil {
		// Other code has reaped the child, so its exit code is lost.
		return Exit{Code: 255, Time: time.Now()}
	}
	return info.exit(time.Now())
}

// reap reaps an ended child. If a later process gets its pid, that process is unknown.
func (c *Children) reap(child *Child, exit Exit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	child.mu.Lock()
	defer child.mu.Unlock()
	_, _, _ = waitid(unix.P_PID, child.p.pid, unix.WEXITED|unix.WNOHANG)
	delete(c.owned, child.p.pid)
	_ = child.p.Close()
	child.reaped, child.exit = true, exit
}

package proc

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// Child is a child of this process. Children reaps it after it has ended and its verdict is
// known. Before that, no other process can get its pid, so it is signalled by its pid, under the
// lock under which it is reaped.
type Child struct {
	pid   int
	start uint64
	over  bool // it has ended; guarded by the lock of its Children
	done  chan struct{}

	decide        sync.Once
	decided       chan struct{}
	record, ended func(Exit) // set before decided is closed
	exit          Exit       // set when over is

	mu     sync.Mutex
	reaped bool
}

// Start starts a program as os.StartProcess does: argv[0] is its path. Children reaps the
// child; no call of Wait is needed.
func (c *Children) Start(argv []string, attr *os.ProcAttr) (*Child, error) {
	return c.StartThen(argv, attr, nil)
}

// StartThen is Start with a function that is called after the child has ended and before it
// is reaped. Until the function returns, no other process can get the child's pid or the
// number of its process group. So in the function KillGroup reaches the processes that the
// child has left.
func (c *Children) StartThen(argv []string, attr *os.ProcAttr, ended func(*Child, Exit)) (*Child, error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("start a process: no program given")
	}
	return c.StartFile(argv[0], argv, attr, ended)
}

// StartFile is StartThen for a program whose path is not argv[0].
func (c *Children) StartFile(path string, argv []string, attr *os.ProcAttr, ended func(*Child, Exit)) (*Child, error) {
	child, err := c.Make(func() (int, error) {
		p, err := os.StartProcess(path, argv, attr)
		if err != nil {
			return 0, err
		}
		pid := p.Pid
		return pid, p.Release() // Children waits for the child by its pid
	})
	if err != nil {
		return nil, err
	}
	var record func(Exit)
	if ended != nil {
		record = func(e Exit) { ended(child, e) }
	}
	child.Decide(record, nil)
	return child, nil
}

// Decide gives the verdict on a child: when the child has ended, Children calls record,
// reaps the child, and then calls ended. Either function may be nil. Both run on a
// goroutine of their own for the child. Only the first verdict counts.
func (c *Child) Decide(record, ended func(Exit)) {
	c.decide.Do(func() {
		c.record, c.ended = record, ended
		close(c.decided)
	})
}

// Drop kills a child and returns when it is reaped. If the child has no verdict yet, no
// function is called.
func (c *Child) Drop() Exit {
	c.Decide(nil, nil)
	_ = c.Kill()
	return c.Wait()
}

// PID returns the child's pid.
func (c *Child) PID() int { return c.pid }

// StartTime returns the child's start time, in clock ticks since boot.
func (c *Child) StartTime() uint64 { return c.start }

// Done is closed when the child was reaped and the functions of its verdict have returned.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait waits until Done is closed. It may be called any number of times.
func (c *Child) Wait() Exit {
	<-c.done
	return c.exit
}

// Signal sends a signal to the child; 0 sends none. The error unwraps to ErrGone if the child
// has ended, reaped or not.
func (c *Child) Signal(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.runsLocked() {
		return fmt.Errorf("process %d: %w", c.pid, ErrGone)
	}
	// A child that ends now is a zombie, and accepts any signal.
	if err := syscall.Kill(c.pid, sig); err != nil {
		return fmt.Errorf("signal %d to process %d: %w", int(sig), c.pid, err)
	}
	return nil
}

// runsLocked reports whether the child exists and has not ended.
func (c *Child) runsLocked() bool {
	if c.reaped {
		return false
	}
	_, ended, err := endOf(c.pid)
	return err == nil && !ended
}

// Kill sends SIGKILL to the child. If the child has ended, it returns nil.
func (c *Child) Kill() error {
	if err := c.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// KillGroup is SignalGroup with SIGKILL.
func (c *Child) KillGroup() error { return c.SignalGroup(syscall.SIGKILL) }

// SignalGroup sends a signal to the process group of a child that was started with Setpgid
// or Setsid. It does nothing after the child was reaped, because another group may have the
// number by then. It holds the lock during kill(2), which does not wait, so that the child
// is not reaped at the same time.
func (c *Child) SignalGroup(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil
	}
	if err := syscall.Kill(-c.pid, sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send signal %d to the process group %d: %w", sig, c.pid, err)
	}
	return nil
}

// Pidfd returns a new pidfd. The error unwraps to ErrGone after the child was reaped.
func (c *Child) Pidfd() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil, fmt.Errorf("process %d: %w", c.pid, ErrGone)
	}
	return pidfd(c.pid)
}

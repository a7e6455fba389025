package proc

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Child is a child of this process that Children reaps: once it has ended, and its
// verdict is known.
type Child struct {
	p    *Process
	done chan struct{}

	decide        sync.Once
	decided       chan struct{}
	record, ended func(Exit) // set before decided is closed

	mu     sync.Mutex
	reaped bool
	exit   Exit // set before done is closed
}

// Start starts a program as os.StartProcess does: argv[0] is its path. Children reaps it
// without a call of Wait.
func (c *Children) Start(argv []string, attr *os.ProcAttr) (*Child, error) {
	return c.StartThen(argv, attr, nil)
}

// StartThen is Start with a function that is called after the child has ended and before it
// is reaped. Until the function returns no other process can get the child's pid or the
// number of its process group, so KillGroup reaches the processes that the child has left.
func (c *Children) StartThen(argv []string, attr *os.ProcAttr, ended func(*Child, Exit)) (*Child, error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("start a process: no program given")
	}
	child, err := c.Make(func() (int, error) {
		p, err := os.StartProcess(argv[0], argv, attr)
		if err != nil {
			return 0, err
		}
		pid := p.Pid
		return pid, p.Release() // Children waits for it
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

// Decide gives the verdict on a child: when it has ended, record is called, then it is
// reaped, then ended is called. Either function may be nil; both run on a goroutine of the
// child. The first verdict is final.
func (c *Child) Decide(record, ended func(Exit)) {
	c.decide.Do(func() {
		c.record, c.ended = record, ended
		close(c.decided)
	})
}

// Drop kills a child and returns when it is reaped. Without an earlier verdict no function is
// called.
func (c *Child) Drop() Exit {
	c.Decide(nil, nil)
	_ = c.Kill()
	return c.Wait()
}

// PID returns the child's pid.
func (c *Child) PID() int { return c.p.PID() }

// StartTime returns the child's start time, in clock ticks since boot.
func (c *Child) StartTime() uint64 { return c.p.StartTime() }

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
	if c.reaped || !c.p.Alive() {
		return fmt.Errorf("process %d: %w", c.p.pid, ErrGone)
	}
	return c.p.Signal(sig)
}

// Kill sends SIGKILL to the child. It is not an error if it has ended.
func (c *Child) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil
	}
	if err := c.p.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// KillGroup is SignalGroup with SIGKILL.
func (c *Child) KillGroup() error { return c.SignalGroup(syscall.SIGKILL) }

// SignalGroup sends a signal to the process group that the child leads, having been started
// with Setpgid or Setsid. It does nothing after the child was reaped, because the number may
// be another group's then. It holds the lock over kill(2), which does not wait, so that the
// child is not reaped in between.
func (c *Child) SignalGroup(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil
	}
	if err := syscall.Kill(-c.p.pid, sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send signal %d to the process group %d: %w", sig, c.p.pid, err)
	}
	return nil
}

// Pidfd returns a new pidfd. The error unwraps to ErrGone after the child was reaped.
func (c *Child) Pidfd() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil, fmt.Errorf("process %d: %w", c.p.pid, ErrGone)
	}
	var fd int
	err := Control(c.p.fd, func(own int) (err error) {
		fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate the pidfd of process %d: %w", c.p.pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

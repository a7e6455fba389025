package proc

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process that Start started.
type Child struct {
	p    *os.Process
	done chan struct{}

	mu     sync.Mutex
	reaped bool
	exit   Exit
}

// Start starts a program as os.StartProcess does: argv[0] is its path. It is
// waited for and reaped without anybody having to ask.
func (c *Children) Start(argv []string, attr *os.ProcAttr) (*Child, error) {
	return c.StartThen(argv, attr, nil)
}

// StartThen is Start with a function that is called once the child has ended and
// before it is reaped. Until that function returns nobody else can get the
// child's pid, or the number of the process group that it leads: KillGroup then
// reaches those that the child has left behind.
func (c *Children) StartThen(argv []string, attr *os.ProcAttr, ended func(*Child, Exit)) (*Child, error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("start a process: no program given")
	}
	// os.StartProcess waits by itself for a child whose exec failed, so the
	// sweep must not meet one that is not registered yet.
	release := c.Expect()
	defer release()
	p, err := os.StartProcess(argv[0], argv, attr)
	if err != nil {
		return nil, err
	}
	fd, err := pidfd(p.Pid)
	if err != nil {
		_ = p.Kill()
		_, _ = p.Wait()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	if err := c.own(p.Pid); err != nil {
		_ = p.Kill()
		_, _ = p.Wait()
		_ = fd.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	child := &Child{p: p, done: make(chan struct{})}
	go func() {
		defer c.waits.Done()
		_ = waitReadable(fd)
		_ = fd.Close()
		if ended != nil {
			ended(child, peek(p.Pid))
		}
		child.reap()
		c.release(p.Pid)
	}()
	return child, nil
}

// peek returns how a child has ended, and leaves it to be reaped.
func peek(pid int) Exit {
	info, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	if err != nil {
		return Exit{Code: 255, Time: time.Now()} // somebody stole it
	}
	return info.exit(time.Now())
}

// reap collects the exit of a child that has ended. It does not block.
func (c *Child) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := c.p.Wait()
	c.reaped = true
	c.exit = Exit{Code: 255, Time: time.Now()}
	if err == nil {
		c.exit = exitOf(state)
	}
	close(c.done)
}

func exitOf(state *os.ProcessState) Exit {
	at := time.Now()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return Exit{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal()), Time: at}
	}
	return Exit{Code: state.ExitCode(), Time: at}
}

// PID returns the child's pid.
func (c *Child) PID() int { return c.p.Pid }

// Done is closed when the child has ended and was reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait waits for the end of the child. It may be called any number of times.
func (c *Child) Wait() Exit {
	<-c.done
	return c.exit
}

// Kill sends SIGKILL to the child. It is not an error if it has ended.
func (c *Child) Kill() error { return c.signal(c.p.Pid, syscall.SIGKILL) }

// KillGroup is SignalGroup with SIGKILL.
func (c *Child) KillGroup() error { return c.SignalGroup(syscall.SIGKILL) }

// SignalGroup sends a signal to the process group that the child leads: it was
// started with Setpgid or Setsid. It does nothing once the child was reaped,
// because the number of the group may be somebody else's then.
func (c *Child) SignalGroup(sig syscall.Signal) error { return c.signal(-c.p.Pid, sig) }

// signal holds the lock over kill(2), which does not wait, so that the child
// cannot be reaped and its pid given away in between.
func (c *Child) signal(pid int, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil
	}
	if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send signal %d to process %d: %w", sig, c.p.Pid, err)
	}
	return nil
}

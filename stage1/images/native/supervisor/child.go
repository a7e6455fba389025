package supervisor

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// child is a process that the supervisor has made.
type child struct {
	pid  int
	name name
	// done is closed when it was reaped, and what its verdict asks for is done.
	done chan struct{}

	mu      sync.Mutex
	pidfd   *os.File // until it is reaped
	verdict verdict
	status  abi.Status // once it was reaped
}

// name says whose process a child is. A hook's has no name.
type name struct{ app, exec string }

func (n name) String() string {
	if n.exec != "" {
		return "exec " + n.exec + " of app " + n.app
	}
	return "app " + n.app
}

// verdict says what becomes of a child's exit.
type verdict int

const (
	// undecided is a child that is still being made. It is not reaped, so that
	// its exit can still be recorded before it is.
	undecided verdict = iota
	recorded          // its exit is recorded and announced
	dropped           // nobody is told
)

// signal sends a signal, or returns an error for which gone is true if the
// process has ended, reaped or not.
func (c *child) signal(sig unix.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd == nil {
		return unix.ESRCH
	}
	if pid, _ := peek(c.pid); pid != 0 {
		return unix.ESRCH // a zombie takes any signal
	}
	if err := unix.PidfdSendSignal(int(c.pidfd.Fd()), sig, nil, 0); err != nil {
		return fmt.Errorf("send signal %d to process %d: %w", sig, c.pid, err)
	}
	return nil
}

// kill kills the process. It has an end, whatever happens.
func (c *child) kill() { _ = c.signal(unix.SIGKILL) }

// killGroup kills the process group that the process leads, which may outlive
// it, but is not known to anybody once it was reaped.
func (c *child) killGroup() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd != nil {
		_ = unix.Kill(-c.pid, unix.SIGKILL)
	}
}

// open returns a pidfd of its own to the caller.
func (c *child) open() (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd == nil {
		return nil, unix.ESRCH
	}
	fd, err := unix.FcntlInt(c.pidfd.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the pidfd of process %d: %w", c.pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// end waits for the end of the process and returns its status.
func (c *child) end() abi.Status {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// reap takes the exit of an ended child and gives its pid back.
func (c *child) reap(status abi.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reap(c.pid)
	c.pidfd.Close()
	c.pidfd = nil
	c.status = status
}

func (c *child) decided() verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict
}

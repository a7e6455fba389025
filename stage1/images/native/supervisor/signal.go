package supervisor

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// signal serves app/signal: it sends a signal to the first process of an app,
// or to an exec's.
func (s *Supervisor) signal(ctx context.Context, r *abi.Request) error {
	sig := unix.Signal(r.Signal)
	if sig < 1 || sig > 64 {
		return unsupported("signal: %d is not a number from 1 to 64", r.Signal)
	}
	c, waits, err := s.target(ctx, r)
	if err != nil {
		return err
	}
	if waits && deadly(sig) {
		// It has not executed anything that could handle the signal, and as
		// process 1 of its namespace it would survive it.
		sig = unix.SIGKILL
	}
	err = c.signal(sig)
	if gone(err) {
		return notFound("%s: process already finished", c.name)
	}
	return err
}

// target returns the process that a signal is for, and whether it waits for its
// exec.
func (s *Supervisor) target(ctx context.Context, r *abi.Request) (c *child, waits bool, err error) {
	a, err := s.app(ctx, r.App)
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Exec == "" {
		return a.launch.child, a.state < running, nil
	}
	n := name{r.App, r.Exec}
	c, ok := s.execs[n]
	if !ok {
		return nil, false, notFound("%s: process already finished", n)
	}
	if c == nil {
		return nil, false, precondition("%s: it has not been started", n)
	}
	return c, false, nil
}

// deadly tells whether a signal kills whoever does not handle it.
func deadly(sig unix.Signal) bool {
	switch sig {
	case unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH,
		unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return false
	}
	return true
}

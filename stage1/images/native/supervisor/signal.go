package supervisor

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// signal serves app/signal: it sends a signal to the first process of an app, or to an exec's.
func (s *Supervisor) signal(ctx context.Context, r *abi.Request) error {
	sig := unix.Signal(r.Signal)
	if sig < 1 || sig > 64 {
		return serve.Unsupported("signal: %d is not a number from 1 to 64", r.Signal)
	}
	n := name{r.App, r.Exec}
	c, waits, err := s.target(ctx, n)
	if err != nil {
		return err
	}
	if waits && proc.Fatal(sig) {
		// No program can handle the signal yet, and process 1 of a PID namespace ignores
		// signals without a handler.
		sig = unix.SIGKILL
	}
	err = c.Signal(sig)
	if gone(err) {
		return serve.NotFound("%s: process already finished", n)
	}
	return err
}

// target returns the process for a signal. waits is set if that process waits for its exec.
func (s *Supervisor) target(ctx context.Context, n name) (c *proc.Child, waits bool, err error) {
	a, err := s.app(ctx, n.app)
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.exec == "" {
		return a.init.child, a.state < running, nil
	}
	c, ok := s.execs[n]
	if !ok {
		return nil, false, serve.NotFound("%s: process already finished", n)
	}
	if c == nil {
		return nil, false, serve.Precondition("%s: it has not been started", n)
	}
	return c, false, nil
}

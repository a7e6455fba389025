package supervisor

import (
	"context"
	"errors"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

// errStopping is the error of calls after stop.
var errStopping error = serve.Precondition("the pod is being stopped")

// stopApp serves app/stop: it kills an app and returns when its end is recorded.
func (s *Supervisor) stopApp(ctx context.Context, r *abi.Request) error {
	a, err := s.app(ctx, r.App)
	if err != nil {
		return err
	}
	_ = a.init.child.Kill()
	select {
	case <-a.init.child.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// remove serves app/rm: it removes an ended app. If the app does not exist, it returns
// nil.
func (s *Supervisor) remove(ctx context.Context, r *abi.Request) error {
	a, err := s.app(ctx, r.App)
	if f := (*serve.Failure)(nil); errors.As(err, &f) && f.Code == abi.ExitNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.move(a, stepRemove); err != nil {
		return err
	}
	a.init.close() // the app may have ended before it was started
	return nil
}

// Stop kills all processes of the pod. Unless it is forced, it returns when all exits are
// recorded.
func (s *Supervisor) Stop(force bool) {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.cancel(errStopping) // ends the calls that are making a process, and their hooks
	s.killAll()
	if force {
		return
	}
	s.making.Wait()
	s.killAll()
	for _, c := range s.Children.All() {
		<-c.Done()
	}
}

func (s *Supervisor) killAll() {
	for _, c := range s.Children.All() {
		_ = c.Kill()
	}
}

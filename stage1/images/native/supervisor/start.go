package supervisor

import (
	"context"
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

// start serves app/start: it releases an added app, and returns when the app has executed
// its program and the poststart hooks have run. If one of these fails, or the caller ends
// before, start kills the app.
func (s *Supervisor) start(ctx context.Context, r *abi.Request) error {
	a, err := s.app(ctx, r.App)
	if err != nil {
		return err
	}
	if err := s.move(a, stepStart); err != nil {
		return err
	}
	i := a.init
	err = i.release(ctx)
	i.close()
	if err != nil {
		var said *serve.Failure
		if !errors.As(err, &said) {
			_ = i.child.Kill() // an app that has reported an error ends with a status of its own
		}
		return explain(ctx, err, i.child.PID(), i.child.Wait())
	}
	_ = s.move(a, stepExec) // illegal, and without effect, if the app has ended
	if h := a.spec.Hooks; h != nil {
		if err := s.runHooks(ctx, a, specs.StateRunning, i.child.PID(), hookKind{"poststart", h.Poststart}); err != nil {
			_ = i.child.Kill()
			i.child.Wait()
			return err
		}
	}
	return nil
}

package pod

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
)

// takeTurn waits until earlier calls have released the turn.
func (a *app) takeTurn(ctx context.Context) (release func(), err error) {
	select {
	case a.turn <- struct{}{}:
		return func() { <-a.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("container %s: wait for another call: %w", a.id, context.Cause(ctx))
	}
}

// takeTurnFor is takeTurn for a step.
func (a *app) takeTurnFor(ctx context.Context, t step) (release func(), err error) {
	return a.takeTurnIf(ctx, func() error { return a.legal(t) })
}

// takeTurnIf is takeTurn for a call that must be legal after the wait. legal is
// also called before the wait, so that an illegal call does not wait.
func (a *app) takeTurnIf(ctx context.Context, legal func() error) (release func(), err error) {
	if err := legal(); err != nil {
		return nil, err
	}
	if release, err = a.takeTurn(ctx); err != nil {
		return nil, err
	}
	if err := legal(); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// takeTurnIn is takeTurn for a call that is legal only in some states.
func (a *app) takeTurnIn(ctx context.Context, verb string, states ...State) (release func(), err error) {
	legal := func() error {
		if s := a.status().State; !slices.Contains(states, s) {
			return fmt.Errorf("cannot %s a %s process: %s: %w", verb, s, a.id, errdefs.ErrFailedPrecondition)
		}
		return nil
	}
	return a.takeTurnIf(ctx, legal)
}

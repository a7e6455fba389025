package pod

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Pause stops every process of a running app, execs included, and returns when all are
// stopped (requirements.md#T7). If that fails, the app continues to run.
//
// No exec is frozen while it is being started. Pause waits for the execs that are being
// started, and no further exec starts once the app is pausing.
func (p *Pod) Pause(ctx context.Context, id AppID) error {
	a, err := p.app(id)
	if err != nil {
		return err
	}
	release, err := a.takeTurnFor(ctx, stepPausing)
	if err != nil {
		return err
	}
	defer release()
	if err := a.step(stepPausing); err != nil {
		return err
	}
	if err := a.pause(ctx); err != nil {
		_ = a.step(stepUnpause) // illegal if the app is being killed or has ended
		return err
	}
	return nil
}

// pause stops an app that is pausing, and publishes the event.
func (a *app) pause(ctx context.Context) error {
	if _, err := a.gate.until(ctx, gateState.drained); err != nil {
		return fmt.Errorf("pause container %s: wait for execs that are being started: %w", a.id, context.Cause(ctx))
	}
	if err := a.freeze(ctx); err != nil {
		return err
	}
	if err := a.push(Event{Kind: EventPaused}); err != nil { // the app is being killed, or has ended
		return errors.Join(err, a.thaw(context.WithoutCancel(ctx)))
	}
	return nil
}

// Resume lets a paused app run again.
func (p *Pod) Resume(ctx context.Context, id AppID) error {
	a, err := p.app(id)
	if err != nil {
		return err
	}
	release, err := a.takeTurnFor(ctx, stepResumed)
	if err != nil {
		return err
	}
	defer release()
	if err := a.thaw(ctx); err != nil {
		return err
	}
	if err := a.push(Event{Kind: EventResumed}); err != nil && a.status().State != Stopped {
		return err
	}
	return nil // the app may have ended at once, by a signal that was pending
}

// pausesItself reports whether the stage1 has the two entrypoints for pausing and
// resuming apps. One of them alone is not used.
func (a *app) pausesItself() bool {
	s := a.session.stage1
	return s.Has(abi.AppPause) && s.Has(abi.AppResume)
}

func (a *app) freeze(ctx context.Context) error {
	if !a.pausesItself() {
		if a.owns(abi.OwnResources) {
			return a.without(abi.AppPause)
		}
		if err := a.cgroup.Freeze(ctx); err != nil {
			return fmt.Errorf("pause container %s: %w", a.id, err)
		}
		return nil
	}
	if err := a.session.stage1.Invoke(ctx, a.call(abi.AppPause)); err != nil {
		// The failed call may have stopped a part of the app.
		return errors.Join(err, a.session.stage1.Invoke(context.WithoutCancel(ctx), a.call(abi.AppResume)))
	}
	return nil
}

// without returns the error of an RPC for which the stage1 has no entrypoint.
func (a *app) without(e abi.Entrypoint) error {
	s := a.session.stage1
	return fmt.Errorf("container %s: stage1 %s has no %s entrypoint: %w", a.id, s.Name(), e, errdefs.ErrNotImplemented)
}

func (a *app) thaw(ctx context.Context) error {
	if a.pausesItself() {
		return a.session.stage1.Invoke(ctx, a.call(abi.AppResume))
	}
	if err := a.cgroup.Thaw(); err != nil {
		return fmt.Errorf("resume container %s: %w", a.id, err)
	}
	return nil
}

// checkFrozen refuses an exec if another program has frozen the app, because the exec
// would hang as soon as it has entered the cgroup. If this shim has paused the app, the
// exec was refused before.
func (a *app) checkFrozen(e *execution) error {
	if a.cgroup.Frozen() {
		return fmt.Errorf("start %s: its container is frozen, and not by a Pause: another program has frozen cgroup %s: %w",
			e.name(), a.cgroup.Path(), errdefs.ErrFailedPrecondition)
	}
	return nil
}

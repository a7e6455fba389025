package pod

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Update changes those limits of an app that an OCI linux.resources object names
// (requirements.md#T12). The app must be created, running or paused. If a limit
// cannot be changed, the error names it, and nothing has changed.
func (p *Pod) Update(ctx context.Context, id AppID, resources []byte) error {
	a, err := p.app(id)
	if err != nil {
		return err
	}
	res, err := parseResources(resources)
	if err != nil {
		return fmt.Errorf("update container %s: %w", a.id, err)
	}
	release, err := a.takeTurnIn(ctx, "update", Created, Running, Paused)
	if err != nil {
		return err
	}
	defer release()
	unknown, err := a.session.stage1.CheckResources(res)
	if err != nil {
		return fmt.Errorf("update container %s: %w", a.id, err)
	}
	a.tellUnknown(ctx, "the update", "", unknown)
	undo := func() error { return nil }
	has := a.session.stage1.Has(abi.AppUpdate)
	if !a.owns(abi.OwnResources) {
		if undo, err = a.cgroup.Update(&res.OCI); err != nil {
			return fmt.Errorf("container %s: %w", a.id, err)
		}
		tellIgnored(ctx, string(a.id), &res.OCI)
	} else if !has {
		return a.without(abi.AppUpdate)
	}
	if !has {
		return nil
	}
	c := a.call(abi.AppUpdate)
	c.Request.Resources = resources
	if err := a.session.stage1.Invoke(ctx, c); err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

// Checkpoint makes the stage1 write the state of a running or paused app to a
// directory (requirements.md#T8), which is made if it does not exist. If the stage1 has no entrypoint for that,
// Checkpoint returns errdefs.ErrNotImplemented.
func (p *Pod) Checkpoint(ctx context.Context, id AppID, c abi.Checkpoint) error {
	a, err := p.app(id)
	if err != nil {
		return err
	}
	if err := a.canCheckpoint("checkpoint"); err != nil {
		return err
	}
	release, err := a.takeTurnIn(ctx, "checkpoint", Running, Paused)
	if err != nil {
		return err
	}
	defer release()
	if err := os.MkdirAll(c.Path, 0o700); err != nil { // as runc does; it will contain the app's memory
		return fmt.Errorf("app %s: make the directory of its checkpoint: %w", id, err)
	}
	call := a.call(abi.AppCheckpoint)
	call.Request.Checkpoint = &c
	if err := a.session.stage1.Invoke(ctx, call); err != nil {
		return err
	}
	_ = a.push(Event{Kind: EventCheckpointed, Checkpoint: c.Path}) // the app may have ended meanwhile
	return nil
}

// canCheckpoint returns an error if the stage1 can neither make checkpoints nor
// restore them.
func (a *app) canCheckpoint(what string) error {
	if !a.session.stage1.Has(abi.AppCheckpoint) {
		return fmt.Errorf("%s %w", what, a.without(abi.AppCheckpoint))
	}
	return nil
}

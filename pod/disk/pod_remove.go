package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// finish removes the pod if it has no apps, is no sandbox any more, and its shim is
// dead.
func (p *podCollector) finish(ctx context.Context) error {
	d := p.dir
	names, err := d.apps()
	if err != nil || len(names) > 0 {
		return err
	}
	if alive, err := d.hasSandbox(); err != nil || alive {
		return err
	}
	if d, err = p.abandonedDir(); err != nil || d == nil {
		return err
	}
	if d != p.dir {
		p.dir = d
		defer d.close()
	}
	if err := p.stopSupervisor(ctx); err != nil {
		return err
	}
	if err := d.Evict(ctx); err != nil {
		return err
	}
	d.store.Fault("stop")
	if d.state == dirRun {
		if err := d.move(dirExited); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return p.remove(ctx)
}

// abandonedDir waits while a living shim removes the pod, which has no app any more.
// It returns the directory as it is then if the shim is dead, and nil if there is
// nothing to do: the directory is gone, or the shim has failed to remove it, has said
// so in its log, and goes on to live.
func (p *podCollector) abandonedDir() (*Dir, error) {
	d := p.dir
	owner, err := proc.Open(d.shim.Shim.PID, d.shim.Shim.StartTime)
	if err != nil {
		if errors.Is(err, proc.ErrGone) {
			return d, nil
		}
		return nil, err
	}
	defer owner.Close()
	now, err := d.awaitRemoval(p.patience)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dying, cancel := context.WithTimeout(p.patience, dyingLimit)
	defer cancel()
	if owner.Wait(dying) != nil {
		now.close()
		return nil, nil
	}
	return now, nil
}

// claim waits until nobody else removes the pod. It is fs.ErrNotExist if somebody has
// done so. One at a time: gc makes the stage1's tree visible again, and must not do that
// in a directory that another one is about to remove.
func (p *podCollector) claim(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, entrypointLimit+lockLimit)
	defer cancel()
	if err := p.dir.takeLock(wait); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.dir.uuid, err)
	}
	return nil
}

// remove executes gc, which has what is left of the entrypoints' time, and
// removes the directory.
func (p *podCollector) remove(ctx context.Context) error {
	err := p.claim(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.entrypoint(abi.GC, nil)
	if p.stage1 != nil {
		if err := p.stage1.Detach(p.dir.Path()); err != nil {
			return err
		}
	}
	p.dir.store.Fault("detach")
	return p.dir.Remove(ctx)
}

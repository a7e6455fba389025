package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// finish removes the pod if it has no apps and no sandbox and its shim is dead.
func (p *podCollector) finish(ctx context.Context) error {
	d := p.dir
	if err := p.debugs(ctx, ""); err != nil {
		return err
	}
	names, err := d.apps()
	if err != nil || len(names) > 0 {
		return err
	}
	if alive, err := d.hasSandbox(); err != nil || alive {
		return err
	}
	if d, err = p.leftDir(); err != nil || d == nil {
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

// errAtWork says that a running shim is removing the pod, or should.
var errAtWork = errors.New("its shim is at work on it")

// leftDir waits while the pod's shim, if it runs, removes the pod, which has no app any
// more. If the shim has ended and the directory exists, leftDir returns the directory. If the
// directory is gone, leftDir returns nil. The error is errAtWork if the shim still runs: it has logged
// why it could not remove the pod, or it hangs.
func (p *podCollector) leftDir() (*Dir, error) {
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
	limit, cancel := context.WithTimeout(p.patience, exitLimit)
	defer cancel()
	if owner.Wait(limit) != nil {
		now.close()
		return nil, errAtWork
	}
	return now, nil
}

// killShim kills the pod's shim and waits for its end.
func (d *Dir) killShim(ctx context.Context) error {
	owner, err := proc.Open(d.shim.Shim.PID, d.shim.Shim.StartTime)
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer owner.Close()
	if err := owner.Signal(unix.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
		return err
	}
	return owner.Wait(ctx)
}

// claim takes the pod's lock, so that no other process removes the pod at the same time: gc
// mounts the stage1's tree again, which must not happen in a directory that is about to be
// removed. The error is fs.ErrNotExist if another process has removed the pod.
func (p *podCollector) claim(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, entrypointLimit+lockLimit)
	defer cancel()
	if err := p.dir.takeLock(wait); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.dir.uuid, err)
	}
	return nil
}

// remove executes gc, within the remaining time for entrypoints, and removes the directory.
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

package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// stopSupervisor ends the stage1's supervisor and waits for its end.
func (p *podCollector) stopSupervisor(ctx context.Context) error {
	owners, err := p.lockOwners()
	if err != nil || len(owners) == 0 {
		return err
	}
	defer func() {
		for _, q := range owners {
			_ = q.Close()
		}
	}()
	p.entrypoint(abi.Stop, nil)
	for _, q := range owners {
		if q.Wait(p.limit) == nil {
			continue
		}
		if err := endProcess(ctx, q); err != nil {
			return fmt.Errorf("supervisor: %w", err)
		}
	}
	return nil
}

// endProcess kills a process and waits for its end.
func endProcess(ctx context.Context, q *proc.Process) error {
	if err := q.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
		return err
	}
	if err := q.Wait(ctx); err != nil {
		return fmt.Errorf("process %d survives SIGKILL: %w", q.PID(), err)
	}
	return nil
}

// lockOwners returns the running processes that keep the pod running: the recorded
// supervisor, or the processes that hold the lock if the shim died before it recorded the
// supervisor. Only a pod in the state run has a supervisor. In the other states the process with the lock makes or removes the
// pod, and may be the server of other containers.
func (p *podCollector) lockOwners() ([]*proc.Process, error) {
	if sup := p.dir.shim.Supervisor; sup != nil {
		q, err := proc.Open(sup.PID, sup.StartTime)
		if errors.Is(err, proc.ErrGone) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return []*proc.Process{q}, nil
	}
	path := p.dir.Path()
	if path != p.dir.store.path(dirRun, p.dir.uuid) {
		return nil, nil
	}
	if locked, err := isLocked(path); err != nil || !locked {
		return nil, err
	}
	return proc.LockOwners(path)
}

// Evict kills the processes that still hold the pod's lock after the supervisor has ended,
// and so keep the pod running. Call it before the pod is removed: the remover takes the lock.
func (d *Dir) Evict(ctx context.Context) error {
	path := d.store.path(dirRun, d.uuid)
	if d.Path() != path {
		return nil
	}
	if err := d.ReleaseLock(); err != nil {
		return err
	}
	locked, err := isLocked(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !locked {
		return err
	}
	owners, err := proc.LockOwners(path)
	limit, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	for _, q := range owners {
		err = errors.Join(err, endProcess(limit, q), q.Close())
	}
	if err != nil {
		return fmt.Errorf("end the lock owners of pod %s: %w", d.uuid, err)
	}
	return nil
}

// end kills the process with this pid and start time, and waits for its end.
func end(ctx context.Context, pid int, start uint64) error {
	p, err := proc.Open(pid, start)
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.Close()
	return endProcess(ctx, p)
}

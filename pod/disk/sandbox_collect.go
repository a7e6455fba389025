package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// collectSandbox collects the sandbox of a pod without its apps. They are collected
// with their own bundles. The pod is removed after the sandbox and the last app were
// collected.
func (p *podCollector) collectSandbox(ctx context.Context, id string, exit CollectedExit) (CollectedExit, error) {
	f, err := p.dir.openSandbox()
	if errors.Is(err, fs.ErrNotExist) {
		return exit, nil
	}
	if err != nil {
		return exit, err
	}
	if f.record.ID != id {
		return exit, fmt.Errorf("%s names pod %s, which is sandbox %s: nothing done", bundleFile, p.dir.uuid, f.record.ID)
	}
	if alive, err := p.dir.shimLives(); err != nil || alive {
		return exit, err // the shim removes the sandbox itself, or containerd has asked it to
	}
	if !exit.Found {
		if exit, err = f.lastExit(); err != nil {
			return exit, err
		}
	}
	return exit, f.collect(ctx)
}

// collect kills the holder and removes the sandbox.
func (f *SandboxFiles) collect(ctx context.Context) error {
	if h := f.record.Holder; h != nil {
		if err := end(ctx, h.PID, h.StartTime); err != nil {
			return fmt.Errorf("holder %d of the sandbox: %w", h.PID, err)
		}
		f.dir.store.Fault("kill holder")
	}
	var group *cgroup.Group
	var err error
	if r := f.record.Cgroup; r != nil {
		group, err = f.takeCgroup(ctx, r)
	} else { // the cgroup may have been made just before the crash
		err = cgroup.RemoveStale(ctx, f.dir.cgroupPath(f.record.CgroupsPath, f.record.ID))
	}
	if err != nil {
		return err
	}
	if err := f.Remove(ctx, group); err != nil {
		if group != nil {
			err = errors.Join(err, group.Release())
		}
		return err
	}
	return nil
}

// takeCgroup returns the holder's cgroup, or nil if another sandbox has its path.
func (f *SandboxFiles) takeCgroup(ctx context.Context, r *cgroup.Record) (*cgroup.Group, error) {
	group, err := cgroup.FromRecord(*r)
	if err != nil {
		return nil, errDamaged(f.dir.root.Name(), sandboxFile, err)
	}
	if ours, err := f.dir.take(ctx, group); err != nil || !ours {
		return nil, err
	}
	return group, nil
}

// lastExit returns the exit of a sandbox that is being collected, and records it in the
// bundle.
func (f *SandboxFiles) lastExit() (CollectedExit, error) {
	exit := CollectedExit{Code: uint32(proc.KilledCode), At: time.Now(), Found: true}
	if h := f.record.Holder; h != nil {
		exit.PID = h.PID
	}
	exit, err := recordExit(f.dir.root, f.backlink(), exit)
	f.dir.store.Fault("record exit")
	return exit, err
}

// hasSandbox reports whether the pod has a sandbox, with which it exists without apps.
func (d *Dir) hasSandbox() (bool, error) {
	_, err := d.root.Lstat(sandboxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// shimLives reports whether the pod's shim is running. It waits up to exitLimit for a
// shim that is exiting.
func (d *Dir) shimLives() (bool, error) {
	owner, err := proc.Open(d.shim.Shim.PID, d.shim.Shim.StartTime)
	if errors.Is(err, proc.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer owner.Close()
	limit, cancel := context.WithTimeout(context.Background(), exitLimit)
	defer cancel()
	return owner.Wait(limit) != nil, nil
}

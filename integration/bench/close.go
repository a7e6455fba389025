package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"
)

// close removes everything of the rig, after success, failure and interrupt alike. If
// containerd or the shims have left something that they should have removed, close removes it
// and returns an error. It may be called for a rig that was only partly opened.
func (r *rig) close() (err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if r.daemon == nil {
		return nil
	}
	// The context of the measurements cannot be used here: an interrupt has ended it.
	ctx, cancel := context.WithTimeout(context.Background(), r.patience()+2*time.Minute)
	defer cancel()
	if r.client != nil {
		err = r.clear(ctx)
	}
	scope := r.scope()
	err = errors.Join(err, r.await(ctx, "nothing is left", scope.Remains))
	if r.client != nil {
		err = errors.Join(err, r.client.Close())
	}
	err = errors.Join(err, r.daemon.Stop())
	if err != nil {
		err = errors.Join(err, r.force())
	}
	if r.meter != nil {
		err = errors.Join(err, r.meter.close())
	}
	return errors.Join(err, scope.Forget(), os.RemoveAll(runcRoot(r.daemon.Namespace())))
}

// runcRoot is the directory that runc's shim makes per namespace and leaves.
func runcRoot(namespace string) string { return filepath.Join("/run/containerd/runc", namespace) }

// clear deletes all containers with their tasks, whatever their states.
func (r *rig) clear(ctx context.Context) error {
	ctx = r.namespaced(ctx)
	containers, err := r.client.Containers(ctx)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	for _, c := range containers {
		if e := r.remove(ctx, c); e != nil {
			err = errors.Join(err, fmt.Errorf("remove container %s: %w", c.ID(), e))
		}
	}
	return err
}

// remove deletes a container with its task, if it has one.
func (r *rig) remove(ctx context.Context, c containerd.Container) error {
	if task, err := c.Task(ctx, nil); err == nil {
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
			return err
		}
	}
	return c.Delete(ctx, containerd.WithSnapshotCleanup)
}

// force removes everything that is left of the rig.
func (r *rig) force() error {
	scope := r.scope()
	pids, err := scope.Processes()
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.patience())
	defer cancel()
	err = errors.Join(err, r.awaitQuiet(ctx))
	points, mountErr := scope.MountPoints()
	err = errors.Join(err, mountErr)
	for _, p := range slices.Backward(points) {
		if e := unix.Unmount(p, unix.MNT_DETACH); e != nil && e != unix.EINVAL { // EINVAL: unmounting a mount above has unmounted it
			err = errors.Join(err, fmt.Errorf("unmount %s: %w", p, e))
		}
	}
	return errors.Join(err, scope.RemoveCgroups())
}

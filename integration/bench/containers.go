package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	runc "github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

// groupAnnotation puts containers into one pod. runc's shim honours it as this shim
// does.
const groupAnnotation = "io.containerd.runc.v2.group"

// options returns the runtime options of the subject's containers, or nil.
func (s subject) options() any {
	if s.binary == "" {
		return nil
	}
	return &runc.Options{BinaryName: s.binary}
}

// sleeper is the program of containers that only have to run.
func sleeper() []string { return []string{"sleep", "100000"} }

// container makes a container of a group, without a task.
func (r *rig) container(ctx context.Context, s subject, group string, args ...string) (containerd.Container, error) {
	return r.containerWith(ctx, s, group, oci.WithProcessArgs(args...))
}

// containerWith is container with further options for the spec.
func (r *rig) containerWith(ctx context.Context, s subject, group string, opts ...oci.SpecOpts) (containerd.Container, error) {
	id := r.id(s)
	return r.client.NewContainer(ctx, id,
		containerd.WithNewSnapshot(id, r.image),
		containerd.WithNewSpec(append([]oci.SpecOpts{
			oci.WithImageConfig(r.image),
			oci.WithDefaultUnixDevices,
			oci.WithAnnotations(map[string]string{groupAnnotation: group}),
		}, opts...)...),
		containerd.WithRuntime(s.runtime, s.options()))
}

// running makes a container that runs, in a group.
func (r *rig) running(ctx context.Context, s subject, group string) (containerd.Task, error) {
	return r.runningWith(ctx, s, group, oci.WithProcessArgs(sleeper()...))
}

// runningWith is running with further options for the spec.
func (r *rig) runningWith(ctx context.Context, s subject, group string, opts ...oci.SpecOpts) (containerd.Task, error) {
	c, err := r.containerWith(ctx, s, group, opts...)
	if err != nil {
		return nil, err
	}
	return started(ctx, c)
}

// started makes the task of a container and starts it.
func started(ctx context.Context, c containerd.Container) (containerd.Task, error) {
	task, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return nil, err
	}
	return task, task.Start(ctx)
}

// pods makes a pod with one running container per subject.
func (r *rig) pods(ctx context.Context) (map[subject]containerd.Task, error) {
	tasks := map[subject]containerd.Task{}
	for _, s := range r.subjects {
		err := r.undisturbed(ctx, func(ctx context.Context) (err error) {
			tasks[s], err = r.running(ctx, s, s.name)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return tasks, nil
}

// lifetime names the operation that each part of a task's life is a sample of.
type lifetime struct{ create, start, both, bothCPU, end, endCPU operation }

// measureLifetime takes one task from Create to Delete.
func (r *rig) measureLifetime(ctx context.Context, s subject, group string, ops lifetime, record recorder) error {
	c, err := r.container(ctx, s, group, sleeper()...)
	if err != nil {
		return err
	}
	used, err := r.meter.settled(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	task, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return err
	}
	create := milliseconds(begin)
	exited, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	begin = time.Now()
	if err := task.Start(ctx); err != nil {
		return err
	}
	start := milliseconds(begin)
	record(ops.create, create)
	record(ops.start, start)
	record(ops.both, create+start)
	if used, err = r.spent(ctx, ops.bothCPU, used, record); err != nil {
		return err
	}

	begin = time.Now()
	if err := end(ctx, task, exited); err != nil {
		return err
	}
	record(ops.end, milliseconds(begin))
	if _, err := r.spent(ctx, ops.endCPU, used, record); err != nil {
		return err
	}
	return c.Delete(ctx, containerd.WithSnapshotCleanup)
}

// live takes one task from Create to Delete and measures nothing.
func (r *rig) live(ctx context.Context, s subject, group string) error {
	c, err := r.container(ctx, s, group, sleeper()...)
	if err != nil {
		return err
	}
	task, err := started(ctx, c)
	if err != nil {
		return err
	}
	return r.finish(ctx, c, task)
}

// finish ends the task of a container and removes both.
func (r *rig) finish(ctx context.Context, c containerd.Container, task containerd.Task) error {
	exited, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	if err := end(ctx, task, exited); err != nil {
		return err
	}
	return c.Delete(ctx, containerd.WithSnapshotCleanup)
}

// end kills a task, waits for its exit and deletes it.
func end(ctx context.Context, task containerd.Task, exited <-chan containerd.ExitStatus) error {
	if err := task.Kill(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	if err := (<-exited).Error(); err != nil {
		return err
	}
	_, err := task.Delete(ctx)
	return err
}

// spent records the processor time since the meter showed used, and the page faults if the
// table has them, and returns what the meter shows now.
func (r *rig) spent(ctx context.Context, op operation, used use, record recorder) (use, error) {
	now, err := r.meter.settled(ctx)
	if err != nil {
		return now, err
	}
	record(op, now.cpu-used.cpu)
	if faults, ok := op.faults(); ok {
		record(faults, now.faults-used.faults)
	}
	return now, nil
}

// measurePods measures pods of one container from Create to Delete.
func measurePods(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	ops := lifetime{opFirstCreate, opFirstStart, opFirst, opFirstCPU, opLastEnd, opLastEndCPU}
	return b.alternate(ctx, "pods of one container", b.samples, func(ctx context.Context, s subject, record recorder) error {
		if err := b.measureLifetime(ctx, s, b.id(s), ops, record); err != nil {
			return err
		}
		return b.awaitQuiet(ctx)
	})
}

// measureContainers measures further containers of running pods from Create to Delete.
func measureContainers(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	if _, err := b.pods(ctx); err != nil {
		return err
	}
	ops := lifetime{opCreate, opStart, opCreateStart, opCreateStartCPU, opEnd, opEndCPU}
	err := b.alternate(ctx, "one more container in a running pod", b.samples, func(ctx context.Context, s subject, record recorder) error {
		return b.measureLifetime(ctx, s, s.name, ops, record)
	})
	if err != nil {
		return err
	}
	return b.clear(ctx)
}

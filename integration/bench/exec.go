package main

import (
	"context"
	"fmt"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// measureExecs runs `true` in running containers. Deleting the exec counts for the processor
// time only.
func measureExecs(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	tasks, err := b.pods(ctx)
	if err != nil {
		return err
	}
	err = b.alternate(ctx, "execs in a running container", b.samples, func(ctx context.Context, s subject, record recorder) error {
		return b.measureExec(ctx, tasks[s], b.id(s), record)
	})
	if err != nil {
		return err
	}
	return b.clear(ctx)
}

func (r *rig) measureExec(ctx context.Context, task containerd.Task, id string, record recorder) error {
	process, err := processTrue(ctx, task)
	if err != nil {
		return err
	}
	used, err := r.meter.settled(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	p, err := execute(ctx, task, id, process)
	if err != nil {
		return err
	}
	record(opExec, milliseconds(begin))
	if _, err := p.Delete(ctx); err != nil {
		return err
	}
	_, err = r.spent(ctx, opExecCPU, used, record)
	return err
}

// execTrue runs `true` and deletes the exec.
func execTrue(ctx context.Context, task containerd.Task, id string) error {
	process, err := processTrue(ctx, task)
	if err != nil {
		return err
	}
	p, err := execute(ctx, task, id, process)
	if err != nil {
		return err
	}
	_, err = p.Delete(ctx)
	return err
}

// processTrue returns the process of a task's container, with another program.
func processTrue(ctx context.Context, task containerd.Task) (*specs.Process, error) {
	spec, err := task.Spec(ctx)
	if err != nil {
		return nil, err
	}
	process := *spec.Process
	process.Args = []string{"true"}
	return &process, nil
}

// execute runs a process to its end. Its exit code must be 0.
func execute(ctx context.Context, task containerd.Task, id string, process *specs.Process) (containerd.Process, error) {
	p, err := task.Exec(ctx, id, process, cio.NullIO)
	if err != nil {
		return nil, err
	}
	exited, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	status := <-exited
	if code, _, err := status.Result(); err != nil || code != 0 {
		return nil, fmt.Errorf("exec %s ended with code %d: %w", id, code, err)
	}
	return p, nil
}

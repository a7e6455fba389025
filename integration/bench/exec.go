package main

import (
	"context"
	"fmt"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
)

// measureExecs runs `true` in running containers. Deleting the exec is not
// measured.
func measureExecs(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	tasks, err := b.pods(ctx)
	if err != nil {
		return err
	}
	err = b.alternate(ctx, "execs in a running container", b.samples, func(ctx context.Context, s subject, record recorder) error {
		return measureExec(ctx, tasks[s], b.id(s), record)
	})
	if err != nil {
		return err
	}
	return b.clear(ctx)
}

func measureExec(ctx context.Context, task containerd.Task, id string, record recorder) error {
	spec, err := task.Spec(ctx)
	if err != nil {
		return err
	}
	process := *spec.Process
	process.Args = []string{"true"}

	begin := time.Now()
	p, err := task.Exec(ctx, id, &process, cio.NullIO)
	if err != nil {
		return err
	}
	exited, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	status := <-exited
	record(opExec, milliseconds(begin))

	if code, _, err := status.Result(); err != nil || code != 0 {
		return fmt.Errorf("exec %s ended with code %d: %w", id, code, err)
	}
	_, err = p.Delete(ctx)
	return err
}

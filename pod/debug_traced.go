package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// reapingTime is how long the parent of a process may take to reap it, before the process's tracer is looked for.
const reapingTime = 2 * time.Second

// waitUntraced is wait. It also ends, with a *tracedError, when the app's process has ended and a tracer keeps its parent
// from reaping it: the kernel hands a traced process to its tracer first. Only then is its exit known.
func (a *app) waitUntraced(ctx context.Context) (Exit, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		if err := a.findTracer(ctx); err != nil {
			cancel(err)
		}
	}()
	exit, err := a.wait(ctx)
	var traced *tracedError
	if errors.As(context.Cause(ctx), &traced) {
		err = traced
	}
	cancel(nil)
	<-looked
	return exit, err
}

// findTracer waits until the app's process has ended, and returns an error if a tracer then keeps it.
func (a *app) findTracer(ctx context.Context) error {
	pid, start, err := a.process.alive()
	if err != nil {
		return nil
	}
	p, err := proc.Open(pid, start)
	if err != nil {
		return nil
	}
	defer p.Close()
	if p.Wait(ctx) != nil || proc.Sleep(ctx, reapingTime) != nil {
		return nil
	}
	if s, err := proc.ReadStat(pid); err != nil || s.StartTime != start || s.State != 'Z' {
		return nil
	}
	if tracer := tracerOf(pid); tracer != 0 {
		return &tracedError{a.id, pid, tracer}
	}
	return nil
}

// tracerOf returns the pid of a process's tracer, or 0.
func tracerOf(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nTracerPid:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	tracer, _ := strconv.Atoi(string(line))
	return tracer
}

// tracedError is the error for an app whose process has ended and cannot be reaped.
type tracedError struct {
	id          AppID
	pid, tracer int
}

func (e *tracedError) Error() string {
	return fmt.Sprintf("%s: its process %d has ended, but process %d, which traces it, does not take notice: its exit is not known before that process ends", e.id, e.pid, e.tracer)
}

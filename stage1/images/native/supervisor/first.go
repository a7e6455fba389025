package supervisor

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// beginByPlan makes the first process of an app, up to the point where it is blocked before its exec,
// by a plan of system calls, and its root by a thread of this process. If it has to be made by init, it
// returns the reason: something that the plan cannot say, or a step that has failed. In the second
// case the error of init is clearer, and what was prepared is used up: mounts are attached once. Nothing
// of the process remains then, nor after an error.
func (s *Supervisor) beginByPlan(ctx context.Context, a *app, stdio [3]*os.File, p *fork.Process) (kind, why string, err error) {
	if a.joins&unix.CLONE_NEWTIME != 0 {
		return "time", "a time namespace", nil
	}
	program, why := a.init.prepared.First()
	if program == nil {
		return why, why, nil
	}
	err = a.init.byPlan(ctx, s, a.joins, stdio, *p, program)
	a.init.prepared.Close() // the process and its root have their own copies
	var failed *fork.Error
	if errors.As(err, &failed) || errors.Is(err, container.ErrOutside) {
		a.init.prepared = nil
		return kindOf(err), err.Error(), nil
	}
	return "", "", err
}

// byPlan makes the process by a plan.
func (i *initProcess) byPlan(ctx context.Context, s *Supervisor, joins int, stdio [3]*os.File, p fork.Process, program *fork.Program) (err error) {
	p.Files, p.Program, p.Born = stdio[:], program, i.prepared.Limit
	i.child, err = s.Children.Make(func() (int, error) {
		if i.begun, err = fork.Begin(ctx, &p); err != nil {
			return 0, err
		}
		return i.begun.PID, nil
	})
	if err != nil {
		if i.begun != nil { // the process has been made and could not be taken over
			i.close()
			i.begun = nil
		}
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = i.child.Kill() })
	defer stop()
	if err = i.buildRoot(ctx, joins); err == nil {
		i.begun.Go()
		_, err = i.begun.Await()
	}
	if err == nil {
		return nil
	}
	status := i.child.Drop()
	i.close()
	i.begun = nil
	if err == fork.ErrEnded {
		err = explain(ctx, errDied, i.child.PID(), status)
	}
	return err
}

// buildRoot makes the app's root while the process waits.
func (i *initProcess) buildRoot(ctx context.Context, joins int) error {
	procfs, err := i.begun.Await()
	if err != nil {
		return err
	}
	defer proc.CloseFiles(procfs...)
	pidfd, err := i.child.Pidfd()
	if err != nil {
		return err
	}
	defer pidfd.Close()
	b, err := i.prepared.Builder(i.child.PID(), pidfd, joins, procfs)
	if err != nil {
		return err
	}
	built := make(chan error, 1)
	go func() { built <- b.Build() }()
	select {
	case err := <-built:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// releaseByPlan is release for a process that is begun.
func (i *initProcess) releaseByPlan(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = i.child.Kill() })
	defer stop()
	i.begun.Go()
	_, err := i.begun.Executed()
	var failed *fork.Error
	switch {
	case err == fork.ErrEnded:
		return errDied
	case errors.As(err, &failed):
		return &serve.Failure{Code: 1, Text: failed.Error()}
	}
	return err
}

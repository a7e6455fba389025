package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// drainLimit is how long Delete waits for output that was not delivered yet
// (requirements.md#T3, requirements.md#X6).
const drainLimit = 10 * time.Second

// Delete removes an app or exec that is created or stopped, and returns how it ended
// (requirements.md#T3). If the app is only created, Delete kills the blocked process
// first. The pod ends with its last app. If another Delete of the same app or exec is in
// progress, Delete waits for it and returns the same answer.
func (p *Pod) Delete(ctx context.Context, id AppID, exec ExecID) (Status, error) {
	a, err := p.app(id)
	if err != nil {
		return Status{}, err
	}
	if exec != "" {
		return a.deleteExec(ctx, exec)
	}
	return a.delete(ctx)
}

// deleteOnce lets one Delete of a process do the work: the one that moves the process to
// Deleting or Discarding. The work moves the process to Deleted, or undoes that step and
// returns an error. A Delete that comes meanwhile waits for the end of that work, or of
// its own ctx, and returns the same status. If the work has failed, the second Delete
// does it.
//
// A second Delete must not return NotFound while the first is in progress. containerd
// would take NotFound for the end of the container, send Shutdown, and close the
// connection on which the first Delete waits for its answer.
//
// The work is not cancelled with its client, because the next Delete could not go on with
// half of a deletion.
func (p *process) deleteOnce(ctx context.Context, work func(context.Context) error) (Status, error) {
	for {
		p.mu.Lock()
		err := p.stepLocked(stepDelete)
		refused := err != nil && !p.state.deletes()
		p.mu.Unlock()
		if refused {
			return Status{}, err
		}
		if err == nil {
			if err := work(context.WithoutCancel(ctx)); err != nil {
				return Status{}, err
			}
			return p.status(), nil
		}
		state, err := p.until(ctx, func(s State) bool { return s != Discarding && s != Deleting })
		if err != nil {
			return Status{}, fmt.Errorf("%s is being deleted by an earlier call, which has not ended: %w", p.name(), context.Cause(ctx))
		}
		if state == Deleted {
			return p.status(), nil
		}
	}
}

func (a *app) deleteExec(ctx context.Context, id ExecID) (Status, error) {
	e, err := a.exec(id)
	if err != nil {
		return Status{}, err
	}
	return e.deleteOnce(ctx, func(ctx context.Context) error {
		a.dropExec(ctx, e)
		return nil
	})
}

// dropExec does the work of deleteExec.
func (a *app) dropExec(ctx context.Context, e *execution) {
	drain(ctx, e.process)
	err := errors.Join(e.stdio.Close(), a.dropRecord(e.exec))
	a.mu.Lock()
	delete(a.execs, e.exec)
	a.mu.Unlock()
	if err != nil {
		a.logOf(ctx, e.process, err).Warnf("%s: left behind by its deletion", e.name())
	}
	_ = e.step(stepDeleted)
}

// drain waits for the output of a process that has ended.
func drain(ctx context.Context, q *process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	q.stdio.Drain(ctx)
}

// delete removes the app. If the app is being started, delete kills it first.
func (a *app) delete(ctx context.Context) (Status, error) {
	for {
		st, err := a.deleteOnce(ctx, a.takeDown)
		if err == nil || !a.in(Starting, Failing) {
			return st, err
		}
		if err := a.killUnstarted(context.WithoutCancel(ctx)); err != nil {
			return Status{}, err
		}
	}
}

// takeDown does the work of delete. It first kills an app that was not started.
func (a *app) takeDown(ctx context.Context) error {
	if a.in(Discarding) {
		if err := a.killUnstarted(ctx); err != nil && a.step(stepUndelete) == nil {
			return err
		}
	}
	a.pod.endDebugs(ctx, a)
	drain(ctx, a.process)
	a.closeExecs(ctx)
	if err := a.dismantle(ctx); err != nil {
		a.log(ctx, err).Warnf("container %s: left behind by its deletion", a.id)
	}
	pushed := a.push(Event{Kind: EventDeleted, Exit: a.status().Exit})
	// The id is free after the event: a new app of it has no event before that.
	if err := a.pod.forget(ctx, a); err != nil {
		a.log(ctx, err).Warnf("container %s: its pod is left behind", a.id)
	}
	return pushed
}

// killUnstarted ends an app that has not executed its program, and waits for its end.
func (a *app) killUnstarted(ctx context.Context) error {
	if err := a.signal(ctx, a.process, killSignal); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, execDrain)
	defer cancel()
	if _, err := a.wait(limit); err != nil {
		return fmt.Errorf("container %s: killed, but its exit was not recorded: %w", a.id, err)
	}
	return nil
}

// closeExecs deletes the execs that no client has deleted.
func (a *app) closeExecs(ctx context.Context) {
	a.mu.Lock()
	execs := a.execs
	a.execs = map[ExecID]*execution{}
	a.mu.Unlock()
	for _, e := range execs {
		if err := e.stdio.Close(); err != nil {
			a.logOf(ctx, e.process, err).Warnf("%s: close its streams", e.name())
		}
		for _, t := range []step{stepExited, stepDelete, stepDeleted} {
			_ = e.step(t) // the exec takes only the steps that are legal for it
		}
	}
}

// dismantle removes everything that was made for the app, and with the last app the pod.
// It goes on after errors, because gc removes the rest.
func (a *app) dismantle(ctx context.Context) error {
	last := a.pod.leave(a)
	var rm error
	if last == nil {
		rm = a.remove(ctx)
	} else {
		// stop does the work of app/rm as well, and the steps below do not depend on it.
		// The end of the session waits for it.
		go last.stop(ctx)
	}
	err := errors.Join(rm, a.network.close(), a.stdio.Close(), both(
		func() error { return a.unmount() },
		func() error { return errors.Join(a.oom.Close(), a.cgroup.End(ctx)) },
	), a.poststop(ctx))
	if last == nil && a.keepsExit() {
		exit := a.status().Exit
		return errors.Join(err, a.disk.Retire(exit.Code, exit.At))
	}
	if last == nil {
		return errors.Join(err, a.disk.Remove())
	}
	return errors.Join(err, a.disk.RemoveFiles(), a.pod.endBehind(ctx, last, a.disk))
}

// keepsExit reports whether the app's exit stays in its bundle.
func (a *app) keepsExit() bool {
	sb, ok := a.session.owner.(*sandbox)
	return ok && sb.config.KeepExits
}

// remove executes app/rm, if the stage1 runs.
func (a *app) remove(ctx context.Context) error {
	if !a.session.alive() || !a.session.stage1.Has(abi.AppRm) {
		return nil
	}
	release, err := a.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	return a.session.stage1.Invoke(ctx, a.call(abi.AppRm))
}

func (a *app) unmount() error {
	if a.config.Rootfs.Empty() {
		return nil
	}
	return disk.Unmount(a.rootfs)
}

// both runs two independent steps concurrently.
func both(f, g func() error) error {
	var wg sync.WaitGroup
	var ferr error
	wg.Go(func() { ferr = f() })
	gerr := g()
	wg.Wait()
	return errors.Join(ferr, gerr)
}

package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// drainLimit is how long Delete waits for output that is still on its way
// (requirement T3, X6).
const drainLimit = 10 * time.Second

// Delete removes an app or exec that is created or stopped, and returns how it
// ended (requirement T3). Of a created app the blocked process is killed first.
// With its last app the pod ends.
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

func (a *app) deleteExec(ctx context.Context, id ExecID) (Status, error) {
	e, err := a.exec(id)
	if err != nil {
		return Status{}, err
	}
	st := e.status()
	if err := e.step(stepDelete); err != nil {
		return Status{}, err
	}
	drain(ctx, e.process)
	err = e.stdio.Close()
	e.discard()
	a.mu.Lock()
	delete(a.execs, id)
	a.mu.Unlock()
	if err != nil {
		log.G(ctx).WithError(err).Warnf("%s: close its streams", e.name())
	}
	return st, nil
}

// drain waits for the output of a process that has ended.
func drain(ctx context.Context, q *process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	q.stdio.Drain(ctx)
}

// delete removes the app. Once begun it is not cancelled with its client, who
// could only come back to find it half done.
func (a *app) delete(ctx context.Context) (Status, error) {
	ctx = context.WithoutCancel(ctx)
	if err := a.claim(); err != nil {
		return Status{}, err
	}
	if err := a.killCreated(ctx); err != nil {
		a.unclaim()
		return Status{}, err
	}
	drain(ctx, a.process)
	a.closeExecs(ctx)
	err := a.dismantle(ctx)
	st := a.status()
	_ = a.step(stepDelete) // claimed: nobody else can have moved it
	a.events.Publish(Event{Kind: EventDeleted, App: a.id, PID: st.PID, Exit: st.Exit})
	if err != nil {
		log.G(ctx).WithError(err).Warnf("container %s: left behind by its deletion", a.id)
	}
	return st, nil
}

// claim makes sure that one Delete alone goes on, from a legal state.
func (a *app) claim() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return fmt.Errorf("container %s is being deleted: %w", a.id, errdefs.ErrNotFound)
	}
	switch s := a.status().State; s {
	case Created, Stopped:
		a.gone = true
		return nil
	default:
		return fmt.Errorf("cannot delete a %s process: %s: %w", s, a.id, errdefs.ErrFailedPrecondition)
	}
}

func (a *app) unclaim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = false
}

// killCreated ends an app that was never started, and waits for that.
func (a *app) killCreated(ctx context.Context) error {
	if a.status().State == Stopped {
		return nil
	}
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

// closeExecs gives back the streams of execs that were never deleted.
func (a *app) closeExecs(ctx context.Context) {
	a.mu.Lock()
	execs := a.execs
	a.execs = map[ExecID]*execution{}
	a.mu.Unlock()
	for _, e := range execs {
		if err := e.stdio.Close(); err != nil {
			log.G(ctx).WithError(err).Warnf("%s: close its streams", e.name())
		}
		e.discard()
	}
}

// dismantle removes what was made for the app, and with the last app the pod.
// Nothing stops it half-way: what cannot be removed is reported and left to gc.
func (a *app) dismantle(ctx context.Context) error {
	defer a.pod.forget(a)
	last := a.pod.leave(a)
	var rm error
	if last == nil {
		rm = a.remove(ctx)
	} else {
		// It covers app/rm, and what follows does not need it. The end of the
		// session waits for it.
		go last.halt(ctx)
	}
	err := errors.Join(rm, a.stdio.Close(), both(
		func() error { return a.unmount() },
		func() error { return errors.Join(a.oom.Close(), a.cgroup.Kill(ctx), a.cgroup.Remove(ctx)) },
	), a.disk.Poststop(ctx))
	if last == nil {
		return errors.Join(err, a.disk.Remove())
	}
	return errors.Join(err, a.disk.removeFiles(), a.pod.endBehind(ctx, last, a.disk))
}

// remove executes app/rm, if the stage1 still lives.
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
	return unmountAll(a.rootfs)
}

// both runs two independent steps at once.
func both(f, g func() error) error {
	var wg sync.WaitGroup
	var ferr error
	wg.Go(func() { ferr = f() })
	gerr := g()
	wg.Wait()
	return errors.Join(ferr, gerr)
}

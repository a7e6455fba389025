package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

const (
	killSignal = int(syscall.SIGKILL)
	maxSignal  = 64
	// killLimit is how long a stage1 may take to deliver SIGKILL.
	killLimit = 2 * time.Second
)

// Kill sends a signal to an app's first process, or to an exec's, and returns
// without waiting for its effect (requirement T9). With all, which is for apps
// only, every process of the app gets it. A process that has ended is
// errdefs.ErrNotFound, an exec that was not started
// errdefs.ErrFailedPrecondition.
func (p *Pod) Kill(ctx context.Context, id AppID, exec ExecID, sig int, all bool) error {
	if sig < 0 || sig > maxSignal {
		return fmt.Errorf("signal %d is not one of 0 to %d: %w", sig, maxSignal, errdefs.ErrInvalidArgument)
	}
	a, q, err := p.find(id, exec)
	if err != nil {
		return err
	}
	if sig == killSignal && exec == "" {
		return a.slay(ctx, all)
	}
	if all && exec == "" {
		return a.signalAll(ctx, sig)
	}
	return a.signal(ctx, q, sig)
}

// slay sends SIGKILL to an app that may be paused, by this shim or by another program:
// it dies all the same. An exec of a paused app dies when that is resumed, where the
// kernel has it so (version 1 of cgroups).
func (a *app) slay(ctx context.Context, all bool) error {
	killing := a.step(stepKill) == nil // else it is in a state in which it cannot be paused
	kill := func() error { return a.signal(ctx, a.process, killSignal) }
	if all {
		kill = func() error { return a.signalAll(ctx, killSignal) }
	}
	if err := kill(); err != nil {
		if killing {
			_ = a.step(stepUnkill) // or it has ended
		}
		return err
	}
	if a.in(Paused) || a.cgroup.Frozen() {
		return a.cgroup.LetDie()
	}
	return nil
}

// signal asks the stage1 to deliver a signal, or does it where the stage1 has no
// entrypoint for that.
func (a *app) signal(ctx context.Context, q *process, sig int) error {
	pid, start, err := q.alive()
	if err != nil {
		return err
	}
	condemned := q.condemn(sig)
	if err = a.dispatch(ctx, q, sig, pid, start); err != nil && condemned {
		q.pardon()
	}
	return err
}

func (a *app) dispatch(ctx context.Context, q *process, sig, pid int, start uint64) error {
	if sig == 0 || !a.session.stage1.Has(abi.AppSignal) || !a.session.alive() {
		return signalPID(q, pid, start, sig)
	}
	c := a.call(abi.AppSignal)
	c.Request.Exec = string(q.exec)
	c.Request.Signal = sig
	if sig == killSignal {
		return a.insist(ctx, q, c, pid, start)
	}
	return a.deliver(ctx, q, c)
}

// deliver executes app/signal.
func (a *app) deliver(ctx context.Context, q *process, c Call) error {
	err := a.session.stage1.Invoke(ctx, c)
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%s: process already finished: %w", q.name(), errdefs.ErrNotFound)
	}
	return err
}

// insist delivers SIGKILL. What cannot be refused does not depend on a stage1 that
// hangs: the process is then killed by its pid.
func (a *app) insist(ctx context.Context, q *process, c Call, pid int, start uint64) error {
	limit, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	err := a.deliver(limit, q, c)
	if err == nil || errdefs.IsNotFound(err) {
		return err
	}
	log.G(ctx).WithError(err).Warnf("%s: the stage1 does not kill it; killed by its pid", q.name())
	return signalPID(q, pid, start, killSignal)
}

// signalPID signals a host pid, checked against its start time. What was created
// and not started is PID 1 of its namespace as a rule, and would ignore what
// should kill it. What has the pod's pid in place of its own gets nothing.
func signalPID(q *process, pid int, start uint64, sig int) error {
	if sig != 0 && !q.exclusive() {
		return fmt.Errorf("%s: it has no process: %w", q.name(), errdefs.ErrNotFound)
	}
	if q.status().State == Created && proc.Fatal(syscall.Signal(sig)) {
		sig = killSignal
	}
	err := send(pid, start, syscall.Signal(sig))
	if errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("%s: process already finished: %w", q.name(), errdefs.ErrNotFound)
	}
	return err
}

// send signals a pid, if it still is the process that began at start.
func send(pid int, start uint64, sig syscall.Signal) error {
	p, err := proc.Open(pid, start)
	if err != nil {
		return err
	}
	return errors.Join(p.Signal(sig), p.Close())
}

// signalAll signals every process of the app, by its cgroup. What is created and
// not started is one process, which needs to be signalled as such. A first process
// that has left its cgroup, as it can where the host's cgroups are mounted writable
// in the container, is signalled all the same: the app lives as long as it does.
//
// An exec that is being started may enter the cgroup behind the signal: then it
// has come after it. If that was SIGKILL, the exit of the app, which is held back
// until no exec is being started, takes the exec along.
func (a *app) signalAll(ctx context.Context, sig int) error {
	pid, _, err := a.alive()
	if err != nil {
		return err
	}
	if sig == 0 || a.status().State == Created {
		return a.signal(ctx, a.process, sig)
	}
	inside, err := a.cgroup.Pids()
	if err == nil {
		err = a.cgroup.Signal(syscall.Signal(sig))
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	if slices.Contains(inside, pid) {
		return nil
	}
	if err := a.signal(ctx, a.process, sig); !errdefs.IsNotFound(err) {
		return err
	}
	return nil // it has ended meanwhile
}

// Pids lists the processes of an app by its cgroup (requirement T6). Of an app
// that has ended it is errdefs.ErrFailedPrecondition, and never NotFound: the
// client would take the app for leaked and delete it with its exit (R3).
func (p *Pod) Pids(_ context.Context, id AppID) ([]ProcessInfo, error) {
	a, err := p.app(id)
	if err != nil {
		return nil, err
	}
	if s := a.status().State; s == Stopped || s == Deleted {
		return nil, fmt.Errorf("list processes: container %s is %s: %w", a.id, s, errdefs.ErrFailedPrecondition)
	}
	pids, err := a.cgroup.Pids()
	if err != nil {
		return nil, fmt.Errorf("container %s: list its processes: %w", a.id, err)
	}
	execs := a.execPIDs()
	infos := make([]ProcessInfo, 0, len(pids))
	for _, pid := range pids {
		infos = append(infos, ProcessInfo{PID: pid, Exec: execs[pid]})
	}
	return infos, nil
}

// execPIDs maps the pids of running execs to their ids.
func (a *app) execPIDs() map[int]ExecID {
	a.mu.Lock()
	defer a.mu.Unlock()
	pids := make(map[int]ExecID, len(a.execs))
	for id, e := range a.execs {
		if s := e.status(); s.PID != 0 && s.State != Stopped {
			pids[s.PID] = id
		}
	}
	return pids
}

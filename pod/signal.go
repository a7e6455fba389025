package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const (
	maxSignal = 64
	// killLimit is how long a stage1 may take to deliver SIGKILL.
	killLimit = 2 * time.Second
)

// Kill sends a signal to an app's first process, or to an exec's, and returns without
// waiting for its effect (requirements.md#T9). If all is set, which is legal for apps
// only, every process of the app gets it. For a process that has ended, Kill returns
// errdefs.ErrNotFound, and for an exec that was not started
// errdefs.ErrFailedPrecondition.
func (p *Pod) Kill(ctx context.Context, id AppID, exec ExecID, sig int, all bool) error {
	if sig < 0 || sig > maxSignal {
		return fmt.Errorf("signal %d is not one of 0 to %d: %w", sig, maxSignal, errdefs.ErrInvalidArgument)
	}
	a, q, err := p.find(id, exec)
	switch {
	case err != nil:
		return err
	case exec != "":
		return a.signal(ctx, q, sig)
	case sig == killSignal:
		return a.kill(ctx, all)
	case all:
		return a.signalAll(ctx, sig)
	}
	return a.signal(ctx, q, sig)
}

// kill sends SIGKILL to the first process of an app, or to all of its processes. It also
// ends an app that is paused, by this shim or by another program. With version 1 of
// cgroups, the execs of such an app end only when it is resumed.
func (a *app) kill(ctx context.Context, all bool) error {
	killing := a.step(stepKill) == nil // illegal in states in which the app cannot be paused
	send := func() error { return a.signal(ctx, a.process, killSignal) }
	if all {
		send = func() error { return a.signalAll(ctx, killSignal) }
	}
	if err := send(); err != nil {
		if killing {
			_ = a.step(stepUnkill) // illegal if the app has ended
		}
		return err
	}
	if a.in(Paused) || a.cgroup.Frozen() {
		return a.cgroup.LetDie()
	}
	return nil
}

// signal sends a signal to a process. If the process was not started and the signal
// would end it, clients see that signal as the cause of its exit.
func (a *app) signal(ctx context.Context, q *process, sig int) error {
	pid, start, err := q.alive()
	if err != nil {
		return err
	}
	noted := q.noteFatal(sig)
	if err = a.send(ctx, q, sig, pid, start); err != nil && noted {
		q.forgetFatal()
	}
	return err
}

// send makes the stage1 send a signal. If the stage1 has no entrypoint for that, or does
// not run, send signals the pid.
func (a *app) send(ctx context.Context, q *process, sig, pid int, start uint64) error {
	if sig == 0 || !a.session.stage1.Has(abi.AppSignal) || !a.session.alive() {
		return sendByPID(q, pid, start, sig)
	}
	c := a.call(abi.AppSignal)
	c.Request.Exec = string(q.exec)
	c.Request.Signal = sig
	if sig != killSignal {
		return a.sendByStage1(ctx, q, c)
	}
	// SIGKILL must be delivered even if the stage1 hangs or fails.
	limit, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	err := a.sendByStage1(limit, q, c)
	if err == nil || errdefs.IsNotFound(err) {
		return err
	}
	a.logOf(ctx, q, err).Warnf("%s: the stage1 does not kill it; killed by its pid", q.name())
	err = sendByPID(q, pid, start, killSignal)
	if errdefs.IsNotFound(err) { // it was alive before: the stage1 has killed it, and not said so
		return nil
	}
	return err
}

// sendByStage1 executes app/signal.
func (a *app) sendByStage1(ctx context.Context, q *process, c Call) error {
	err := a.session.stage1.Invoke(ctx, c)
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%s: process already finished: %w", q.name(), errdefs.ErrNotFound)
	}
	return err
}

// sendByPID signals the process that has this host pid and start time. A process that was
// created and not started is usually PID 1 of its namespace and would ignore a fatal
// signal, so it gets SIGKILL instead.
func sendByPID(q *process, pid int, start uint64, sig int) error {
	if q.status().State == Created && proc.Fatal(syscall.Signal(sig)) {
		sig = killSignal
	}
	err := q.send(pid, start, syscall.Signal(sig))
	if errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("%s: process already finished: %w", q.name(), errdefs.ErrNotFound)
	}
	return err
}

// signalAll signals every process of the app, by its cgroup. A created app has only one
// process, and send signals it. If the host's cgroups are mounted writable in the
// container, the first process can leave the cgroup. signalAll signals it all the same,
// because the app runs as long as its first process does.
//
// An exec that is being started may enter the cgroup after the signal. It then counts as
// started after the signal. If the signal was SIGKILL, the exec is killed before the
// exit of the app is published, because that waits for the execs that are being started.
func (a *app) signalAll(ctx context.Context, sig int) error {
	pid, _, err := a.alive()
	if err != nil {
		return err
	}
	if sig == 0 || a.status().State == Created {
		return a.signal(ctx, a.process, sig)
	}
	if a.owns(abi.OwnProcesses) {
		return a.signalAllInside(ctx, sig)
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
	return nil // the app has ended meanwhile
}

// signalAllInside has the stage1 signal every process of an app whose processes stage 0 does not
// see. SIGKILL does not depend on a stage1 that hangs or fails: then the proxies are killed.
func (a *app) signalAllInside(ctx context.Context, sig int) error {
	c := a.call(abi.AppSignal)
	c.Request.Signal, c.Request.All = sig, true
	if sig != killSignal {
		return a.sendByStage1(ctx, a.process, c)
	}
	limit, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	err := a.sendByStage1(limit, a.process, c)
	if err == nil || errdefs.IsNotFound(err) {
		return err
	}
	a.log(ctx, err).Warnf("container %s: the stage1 does not kill its processes; their proxies are killed", a.id)
	return a.killProcesses(ctx)
}

// killProcesses ends every process of the app by its pid and cgroup. The first process
// is killed even if it has left the cgroup.
func (a *app) killProcesses(ctx context.Context) error {
	pid, start, err := a.alive()
	if err != nil {
		return nil // it has ended
	}
	if err := sendByPID(a.process, pid, start, killSignal); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return a.cgroup.Kill(ctx)
}

// Pids lists the processes of an app by its cgroup (requirements.md#T6). For an app that
// has ended it returns errdefs.ErrFailedPrecondition. NotFound would make the client
// take the app for leaked, and delete it with its exit (requirements.md#R3). The pids of
// processes that stage 0 does not see are the stage1's own numbers.
func (p *Pod) Pids(ctx context.Context, id AppID) ([]ProcessInfo, error) {
	a, err := p.app(id)
	if err != nil {
		return nil, err
	}
	if s := a.status().State; s == Stopped || s == Deleted {
		return nil, fmt.Errorf("list processes: container %s is %s: %w", a.id, s, errdefs.ErrFailedPrecondition)
	}
	if a.owns(abi.OwnProcesses) {
		return a.pidsInside(ctx)
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

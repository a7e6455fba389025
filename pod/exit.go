package pod

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/containerd/log"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// execDrain is how long the exit of an app waits for the exits of its execs,
// whose processes have been killed by then.
const execDrain = 5 * time.Second

// ended takes up the recorded exit of the app's first process, or of an exec.
func (a *app) ended(ctx context.Context, exec ExecID, st abi.Status) {
	a.oom.Report() // what has caused it goes first (requirement C5)
	if exec != "" {
		if e, err := a.exec(exec); err == nil {
			e.exited(toExit(st))
		}
		return
	}
	if !a.gate.close() {
		return // this is not the first report
	}
	execs := a.allExecs()
	a.mu.Lock()
	ownPIDs := a.ownPIDs
	a.mu.Unlock()
	if ownPIDs && len(execs) == 0 && !a.frozen() {
		a.exited(toExit(st)) // nothing to wait for, and the caller's order is kept
		return
	}
	go a.finish(context.WithoutCancel(ctx), st, execs)
}

// allExecs returns the app's execs, whatever their state.
func (a *app) allExecs() []*execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.execs))
}

// frozen reports whether the app's processes are frozen, or are being frozen. A Kill
// may have come in between.
func (a *app) frozen() bool {
	return a.in(Pausing, Paused) || a.in(Killing) && a.cgroup.Frozen()
}

// finish publishes the app's exit once nothing of it runs any more (X4) and its
// execs' exits were published (E1).
func (a *app) finish(ctx context.Context, st abi.Status, execs []*execution) {
	drained := a.gate.drained()
	a.killRest(ctx)
	limit, cancel := context.WithTimeout(ctx, execDrain)
	defer cancel()
	select {
	case <-drained:
	default:
		// An exec may have got into the cgroup after everybody in it was killed.
		// No further one starts, so after this there is none.
		select {
		case <-drained:
		case <-limit.Done():
		}
		a.killRest(ctx)
	}
	a.exited(toExit(st)) // the outbox holds it until the execs have ended
	for _, e := range execs {
		if !e.running() {
			continue
		}
		if _, err := e.wait(limit); err != nil {
			e.lost(ctx)
		}
	}
}

// lost ends an exec whose app has ended. If its start is still under way, it has no
// events, and the start will fail.
func (e *execution) lost(ctx context.Context) {
	if exit := toExit(killed()); !e.giveUp(exit) {
		e.exited(exit)
	}
	log.G(ctx).Warnf("%s: no exit %s after its container's; reported as 137", e.name(), execDrain)
}

func (a *app) killRest(ctx context.Context) {
	if err := a.cgroup.Kill(ctx); err != nil {
		log.G(ctx).WithError(err).Warnf("container %s: its first process has ended; cannot kill the rest", a.id)
	}
}

// orphaned is called when the stage1 has died: what belonged to it is killed.
// What the stage1 recorded is reported with what it has written down, else as
// killed; the exit of anything else is noticed as ever.
func (a *app) orphaned(ctx context.Context) {
	if _, _, err := a.alive(); err != nil {
		return
	}
	if err := a.cgroup.Kill(ctx); err != nil {
		log.G(ctx).WithError(err).Errorf("container %s: its stage1 has died; cannot kill its processes", a.id)
	}
	for _, e := range a.allExecs() {
		if e.running() && e.recordedBy() == RecordedByStage1 {
			a.ended(ctx, e.exec, a.lastWord(e.exec))
		}
	}
	if a.recordedBy() == RecordedByStage1 {
		a.ended(ctx, "", a.lastWord(""))
	}
}

// lastWord returns the recorded exit of a process whose stage1 has died.
func (a *app) lastWord(exec ExecID) abi.Status {
	if st, ok := a.session.readStatus(a.name, exec); ok {
		return st
	}
	return killed()
}

package pod

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// execDrain is how long the exit of an app waits for the exits of its execs. The
// processes of the execs were killed before.
const execDrain = 5 * time.Second

// ended reports the exit of the app's first process, or of an exec. Only the first of
// several reports counts.
func (a *app) ended(ctx context.Context, q *process, st abi.Status) {
	a.oom.Report() // publish the OOM event before the exit that it explains (requirements.md#C5)
	if q.exec != "" {
		q.exited(toExit(st))
		return
	}
	if !a.gate.close() {
		return // this is not the first report
	}
	execs := a.allExecs()
	if a.endsAll() && len(execs) == 0 && !a.frozen() {
		a.exited(toExit(st)) // there is nothing to kill or to wait for
		return
	}
	go a.finish(context.WithoutCancel(ctx), st, execs)
}

// frozen reports whether the app's processes are frozen, or are being frozen. It also
// looks at the cgroup of an app that is being killed.
func (a *app) frozen() bool {
	return a.in(Pausing, Paused) || a.in(Killing) && a.cgroup.Frozen()
}

// finish kills what the first process has left of the app (requirements.md#X4) and
// publishes its exit after the exits of its execs (requirements.md#E1).
func (a *app) finish(ctx context.Context, st abi.Status, execs []*execution) {
	drained := a.gate.current().drained()
	a.killRest(ctx)
	limit, cancel := context.WithTimeout(ctx, execDrain)
	defer cancel()
	if !drained {
		// An exec may have entered the cgroup after all its processes were killed. No
		// further exec starts, so the second kill ends the last one.
		_, _ = a.gate.until(limit, gateState.drained)
		a.killRest(ctx)
	}
	a.exited(toExit(st)) // the outbox holds this event until the execs have ended
	for _, e := range execs {
		if !e.running() {
			continue
		}
		if _, err := e.wait(limit); err != nil {
			a.lost(ctx, e)
		}
	}
}

// lost ends an exec whose app has ended. If the exec is still being started, the start
// fails, and no event of the exec is published.
func (a *app) lost(ctx context.Context, e *execution) {
	if exit := toExit(killed()); !e.giveUp(exit) {
		e.exited(exit)
	}
	a.logOf(ctx, e.process, nil).Warnf("%s: no exit %s after its container's; reported as 137", e.name(), execDrain)
}

func (a *app) killRest(ctx context.Context) {
	if err := a.cgroup.Kill(ctx); err != nil {
		a.log(ctx, err).Warnf("container %s: its first process has ended; cannot kill the rest", a.id)
	}
}

// stage1Ended ends an app whose stage1 has ended. If the stage1 was to record the
// exits of processes, the recorded exits are reported, or 137 if there is no record.
// All other exits are reported as usual.
func (a *app) stage1Ended(ctx context.Context) {
	if _, _, err := a.alive(); err != nil {
		return
	}
	if err := a.cgroup.Kill(ctx); err != nil {
		a.log(ctx, err).Errorf("container %s: its stage1 has died; cannot kill its processes", a.id)
	}
	for _, e := range a.allExecs() {
		if e.running() && e.description().Recorder == RecordedByStage1 {
			a.ended(ctx, e.process, a.recordedExit(e.exec))
		}
	}
	if a.description().Recorder == RecordedByStage1 {
		a.ended(ctx, a.process, a.recordedExit(""))
	}
}

// recordedExit returns the exit of a process whose stage1 has ended.
func (a *app) recordedExit(exec ExecID) abi.Status {
	if st, ok := a.session.readStatus(a.name, exec); ok {
		return st
	}
	return killed()
}

// toExit converts a recorded status.
func toExit(st abi.Status) Exit { return Exit{Code: uint32(st.Code), At: st.Time} }

// killed is the exit of a process whose status was not recorded.
func killed() abi.Status {
	return abi.Status(proc.Killed())
}

// statusDir returns the directory in which the stage1 records exits.
func (s *session) statusDir() string { return filepath.Join(s.dir.Path(), abi.StatusDir) }

// readStatus returns the recorded exit of a process, if there is one.
func (s *session) readStatus(name disk.AppName, exec ExecID) (abi.Status, bool) {
	st, err := abi.ReadStatus(s.statusDir(), string(name), string(exec))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log(context.Background(), err).Warnf("pod %s: unreadable exit status", s.dir.UUID())
	}
	return st, err == nil
}

// killedExit is the exit of a process whose status cannot be read.
func killedExit() Exit { return toExit(killed()) }

package pod

import (
	"context"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// abortLimit is how long the process of an app that could not be started may take
// to end.
const abortLimit = 5 * time.Second

// Start runs a created app, or a registered exec (requirements.md#T2), and returns its
// pid. If the start fails, an exec is created again, and an app has ended.
func (p *Pod) Start(ctx context.Context, id AppID, exec ExecID) (int, error) {
	a, err := p.app(id)
	if err != nil {
		return 0, err
	}
	if exec != "" {
		e, err := a.exec(exec)
		if err != nil {
			return 0, err
		}
		return a.startExec(ctx, e)
	}
	return a.startApp(ctx)
}

// startApp executes app/start. It is not cancelled with the client, because the client
// would not know whether the program runs.
func (a *app) startApp(ctx context.Context) (int, error) {
	release, err := a.takeTurnFor(ctx, stepStart)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := a.beginStart(); err != nil {
		return 0, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := a.session.stage1.Invoke(ctx, a.call(abi.AppStart)); err != nil {
		a.abort(ctx)
		return 0, a.session.failure(a.name, err)
	}
	if err := a.becomes(); err != nil {
		a.log(ctx, err).Warnf("container %s: its pid is not on record", a.id)
	}
	if err := a.disk.MarkStarted(); err != nil { // only people and rktctl read it
		a.log(ctx, err).Warnf("container %s: the time of its start is not on record", a.id)
	}
	if err := a.push(Event{Kind: EventStarted}); err != nil {
		return 0, err
	}
	return a.status().PID, nil
}

// becomes takes over the process that app/start has made in place of the first one, if
// there is one, and records it on disk.
func (a *app) becomes() error {
	select {
	case now := <-a.description().Becomes:
		a.process.mu.Lock()
		a.pid, a.start = now.PID, now.StartTime
		a.process.mu.Unlock()
		return a.disk.Update(func(r *disk.AppRecord) { r.PID, r.StartTime = now.PID, now.StartTime })
	default:
		return nil
	}
}

// abort kills the processes that a failed app/start has left of the app, which may even
// have executed its program. No client can signal the app any more, and as long as it
// runs, its Delete cannot succeed. abort returns when the exit was reported, because a
// stage1 may refuse app/rm before that.
func (a *app) abort(ctx context.Context) {
	_ = a.step(stepFail)
	a.lane.unstart()
	defer func() { a.giveUp(Exit{Code: failedStart, At: time.Now()}) }()
	ctx, cancel := context.WithTimeout(ctx, abortLimit)
	defer cancel()
	if err := a.killProcesses(ctx); err != nil {
		a.log(ctx, err).Errorf("container %s: its start has failed; cannot kill what is left of it", a.id)
		return
	}
	_, _ = a.wait(ctx)
}

package pod

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// abortLimit is how long the process of an app that could not be started may take
// to end.
const abortLimit = 5 * time.Second

// Start runs a created app, or a registered exec (requirement T2), and returns
// its pid. A failed start leaves an exec created and ends an app.
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

// startApp executes app/start. It is not cancelled with the client: a process
// that may or may not run would be nobody's.
func (a *app) startApp(ctx context.Context) (int, error) {
	release, err := a.takeTurnFor(ctx, stepStart)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := a.step(stepStart); err != nil {
		return 0, err
	}
	ctx = context.WithoutCancel(ctx)
	if err := a.session.stage1.Invoke(ctx, a.call(abi.AppStart)); err != nil {
		a.abort(ctx)
		a.perished(Exit{Code: 128, At: time.Now()})
		return 0, err
	}
	if err := a.becomes(); err != nil {
		log.G(ctx).WithError(err).Warnf("container %s: its pid is not on record", a.id)
	}
	a.started(EventStarted)
	return a.status().PID, nil
}

// becomes takes up the process that app/start has put in the place of the first one, and
// puts it on disk.
func (a *app) becomes() error {
	select {
	case now := <-a.made.Becomes:
		a.process.mu.Lock()
		a.pid, a.start = now.PID, now.StartTime
		a.process.mu.Unlock()
		return a.disk.Update(func(r *AppRecord) { r.PID, r.StartTime = now.PID, now.StartTime })
	default:
		return nil
	}
}

// abort kills what a failed app/start has left of the app. Nobody can signal it any
// more, it may even have executed its program, and as long as it lives it holds up
// the app's Delete. It returns once the end is noticed: before, a stage1 may refuse
// app/rm.
func (a *app) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, abortLimit)
	defer cancel()
	if err := a.kill(ctx); err != nil {
		log.G(ctx).WithError(err).Errorf("container %s: its start has failed; cannot kill what is left of it", a.id)
		return
	}
	select {
	case <-a.noticed:
	case <-ctx.Done():
	}
}

// kill ends every process of the app, the first one also if it has left its cgroup.
func (a *app) kill(ctx context.Context) error {
	pid, start, err := a.alive()
	if err != nil {
		return nil // it has ended
	}
	if err := signalPID(a.process, pid, start, killSignal); err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	return a.cgroup.Kill(ctx)
}

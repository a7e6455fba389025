package pod

import (
	"context"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

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
		a.perished(Exit{Code: 128, At: time.Now()})
		return 0, err
	}
	a.started(EventStarted)
	return a.status().PID, nil
}

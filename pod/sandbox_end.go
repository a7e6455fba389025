package pod

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// ended sets the exit of the sandbox, unless it has one.
func (sb *sandbox) ended(e Exit) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.state.stopRequested() {
		e.Code = 0 // after a requested stop the exit code is 0
	}
	sb.endLocked(e)
}

func (sb *sandbox) endLocked(e Exit) {
	if sb.stepLocked(stepSandboxStopped) == nil {
		sb.status.Exit = e
	}
}

// killApps ends every app of the pod and waits for the ends. An app that is being
// made fails at its next step, or is killed with the stage1.
func (p *Pod) killApps(ctx context.Context, grace time.Duration) error {
	apps := slices.DeleteFunc(p.all(), func(a *app) bool { return a.status().State == Creating })
	if grace > 0 {
		for _, a := range apps {
			_ = p.Kill(ctx, a.id, "", int(syscall.SIGTERM), false) // it may have ended
		}
		limit, cancel := context.WithTimeout(ctx, grace)
		for _, a := range apps {
			_, _ = a.wait(limit)
		}
		cancel()
	}
	var errs []error
	for _, a := range apps {
		if err := a.kill(ctx, true); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
			errs = append(errs, err)
		}
	}
	for _, a := range apps {
		if _, err := a.wait(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

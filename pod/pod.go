package pod

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
)

// New returns a pod without a directory and without a process.
func New(cfg PodConfig) *Pod {
	return &Pod{cfg: cfg, apps: map[AppID]*app{}, owner: byApps{}}
}

// Empty reports whether the pod has no app, apart from the one whose id is but.
func (p *Pod) Empty(but AppID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.apps {
		if id != but {
			return false
		}
	}
	return true
}

// Ended reports whether all apps that the pod has have ended. A pod without apps has ended.
func (p *Pod) Ended() bool {
	return !slices.ContainsFunc(p.all(), func(a *app) bool { return !a.in(Stopped, Deleting, Deleted) })
}

// Close ends the pod if it has no app, and refuses further apps. If the pod has
// apps, or is a sandbox, which only ShutdownSandbox ends, Close returns
// errdefs.ErrFailedPrecondition.
func (p *Pod) Close(ctx context.Context) error {
	p.mu.Lock()
	if len(p.apps) > 0 {
		n := len(p.apps)
		p.mu.Unlock()
		return fmt.Errorf("close pod of sandbox %s: it has %d apps: %w", p.cfg.Key.Sandbox, n, errdefs.ErrFailedPrecondition)
	}
	if err := p.owner.outlivesApps(); err != nil {
		p.mu.Unlock()
		return err
	}
	p.owner = shutDown{}
	s := p.session
	mine := s != nil && s.step(sessionEnd)
	p.mu.Unlock()
	switch {
	case s == nil:
		return nil
	case mine:
		return p.end(ctx, s)
	}
	// Another call is ending the session.
	if _, err := s.until(ctx, func(st sessionState) bool { return st == sessionGone }); err != nil {
		return fmt.Errorf("wait for the end of the pod: %w", err)
	}
	return nil
}

// Status returns the status of an app or exec.
func (p *Pod) Status(id AppID, exec ExecID) (Status, error) {
	a, q, err := p.find(id, exec)
	if err != nil {
		return Status{}, err
	}
	st := q.status()
	st.Tag = q.tag
	switch st.State {
	case Created, Starting, Running: // an exec pauses with its app (requirements.md#T5)
		if s := a.status().State; s == Pausing || s == Paused {
			st.State = s
		}
	}
	return st, nil
}

// Wait waits until an app or exec has ended and its client has read its output, or until ctx
// ends. A client that does not read delays it by a second. Calls after that return at once,
// until the app or exec is deleted. For an exec whose start failed, the Exit is zero.
func (p *Pod) Wait(ctx context.Context, id AppID, exec ExecID) (Exit, error) {
	_, q, err := p.find(id, exec)
	if err != nil {
		return Exit{}, err
	}
	exit, err := q.wait(ctx)
	if err == nil {
		q.stdio.Settle(ctx, exit.At)
	}
	return exit, err
}

// Resize sets the size of a process's terminal. If there is no terminal yet, the
// size is kept for it. For a process without a terminal it is a no-op
// (requirements.md#T10).
func (p *Pod) Resize(id AppID, exec ExecID, size Size) error {
	_, q, err := p.find(id, exec)
	if err != nil {
		return err
	}
	return q.resize(size)
}

// CloseStdin ends the input of a process (requirements.md#T11).
func (p *Pod) CloseStdin(id AppID, exec ExecID) error {
	_, q, err := p.find(id, exec)
	if err != nil {
		return err
	}
	return q.stdio.CloseStdin()
}

// leave returns the session to end if a is the pod's last app. From then on, a new
// app waits for a new session.
func (p *Pod) leave(a *app) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.apps[a.id]; !ok || len(p.apps) > 1 || p.owner.outlivesApps() != nil || p.session == nil || !p.session.step(sessionEnd) {
		return nil
	}
	return p.session
}

// forget gives an app's id back, and ends the pod if it has no app any more: of apps that are
// deleted at the same time none was the last one when it left.
func (p *Pod) forget(ctx context.Context, a *app) error {
	p.mu.Lock()
	if p.apps[a.id] == a {
		delete(p.apps, a.id)
	}
	s := p.session
	mine := len(p.apps) == 0 && p.owner.outlivesApps() == nil && s != nil && s.step(sessionEnd)
	p.mu.Unlock()
	if !mine {
		return nil
	}
	return p.end(ctx, s)
}

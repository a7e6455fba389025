package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Config is what a pod is made of.
type Config struct {
	Store    *disk.Store
	Key      disk.Key
	Children *proc.Children
	Events   Events
	// OpenStage1 returns the stage1 that isolates this pod, one that no other has
	// had: it may remember the pod that it runs. It is called when the first app
	// comes, and again if that failed or the pod has ended since.
	OpenStage1 func(context.Context) (Stage1, error)
	// Choice, if set, returns why the pod has its stage1: By and Excused.
	Choice func() disk.Stage1Record
	// Admit, if set, refuses an app by the annotations of its spec.
	Admit func(annotations map[string]string) error
}

// Pod is a group of apps that share a stage1. It makes its directory and starts
// its supervisor with its first app, and ends with its last one; an app that
// comes after that starts it anew, in a new directory. A pod that CreateSandbox
// has made ends with ShutdownSandbox, whether it has apps or not.
//
// All methods may be called concurrently. An unknown app or exec is
// errdefs.ErrNotFound. Legal states are those of the table in states.go;
// outside them a method returns errdefs.ErrFailedPrecondition and changes
// nothing.
type Pod struct {
	cfg Config

	mu      sync.Mutex
	apps    map[AppID]*app
	session *session // the stage1 that runs, is being started or is being ended
	owner   owner
}

// New returns a pod without a directory and without a process.
func New(cfg Config) *Pod {
	return &Pod{cfg: cfg, apps: map[AppID]*app{}, owner: byApps{}}
}

// Empty reports whether the pod has no app, but for one of this id.
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

// Close ends the pod if it has no app, and refuses further ones. With apps, or with
// a sandbox, which ShutdownSandbox ends, it returns errdefs.ErrFailedPrecondition.
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
	// Another call ends it.
	if _, err := s.until(ctx, func(st sessionState) bool { return st == sessionGone }); err != nil {
		return fmt.Errorf("wait for the end of the pod: %w", err)
	}
	return nil
}

// Status returns what is known of an app or exec.
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

// Wait blocks until an app or exec has ended, or ctx. It returns at once for one
// that has, until it is deleted. For an exec whose start failed the Exit is zero.
func (p *Pod) Wait(ctx context.Context, id AppID, exec ExecID) (Exit, error) {
	_, q, err := p.find(id, exec)
	if err != nil {
		return Exit{}, err
	}
	return q.wait(ctx)
}

// Resize sets the size of a process's terminal. Before there is one, the size is
// kept for it; without a terminal it is a no-op (requirements.md#T10).
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

// app returns an app that clients may know. They do not know an app that is being
// created, or whose creation has failed and is being undone.
func (p *Pod) app(id AppID) (*app, error) {
	p.mu.Lock()
	a := p.apps[id]
	p.mu.Unlock()
	if a != nil {
		if s := a.status().State; s != Creating && s != Deleted {
			return a, nil
		}
	}
	return nil, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
}

// find returns an app and the process that exec names in it.
func (p *Pod) find(id AppID, exec ExecID) (*app, *process, error) {
	a, err := p.app(id)
	if err != nil {
		return nil, nil, err
	}
	if exec == "" {
		return a, a.process, nil
	}
	e, err := a.exec(exec)
	if err != nil {
		return nil, nil, err
	}
	return a, e.process, nil
}

// reserve takes an app's id.
func (p *Pod) reserve(a *app) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.apps[a.id]; ok {
		return fmt.Errorf("container %s: %w", a.id, errdefs.ErrAlreadyExists)
	}
	p.apps[a.id] = a
	return nil
}

// join makes an app a member of a session.
func (p *Pod) join(a *app, s *session, name disk.AppName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.session, a.name = s, name
}

// leave returns the session to end if a is the pod's last app. From then on a
// new app waits for a new session.
func (p *Pod) leave(a *app) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.apps[a.id]; !ok || len(p.apps) > 1 || p.owner.outlivesApps() != nil || p.session == nil || !p.session.step(sessionEnd) {
		return nil
	}
	return p.session
}

// forget gives an app's id back.
func (p *Pod) forget(a *app) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.apps[a.id] == a {
		delete(p.apps, a.id)
	}
}

// byName returns the app of a session that has a name.
func (p *Pod) byName(s *session, name disk.AppName) *app {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.apps {
		if a.session == s && a.name == name {
			return a
		}
	}
	return nil
}

// members returns the apps of a session.
func (p *Pod) members(s *session) []*app {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*app
	for _, a := range p.apps {
		if a.session == s {
			all = append(all, a)
		}
	}
	return all
}

// cleanup collects undo steps, last in first out.
type cleanup []func() error

func (c *cleanup) add(f func() error) { *c = append(*c, f) }

// run undoes everything and returns err joined with what the undoing met.
func (c cleanup) run(err error) error {
	for i := len(c) - 1; i >= 0; i-- {
		err = errors.Join(err, c[i]())
	}
	return err
}

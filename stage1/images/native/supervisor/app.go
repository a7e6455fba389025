package supervisor

import (
	"context"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// app is an app of the pod.
type app struct {
	name      string
	container string // containerd's id
	bundle    string
	// settled is closed when app/add has succeeded or has cleaned up.
	settled chan struct{}

	// Set by app/add before the app is added, and not changed afterwards.
	spec   *specs.Spec
	launch *launch
	joins  int // CLONE_NEW* flags of the namespaces that an exec has to join

	state state // guarded by Supervisor.mu
}

// reserve takes a name for an app that is being made. The caller calls settle.
func (s *Supervisor) reserve(r *abi.Request) (*app, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, precondition("app %s: the pod is being stopped", r.App)
	}
	if r.App == "" || s.apps[r.App] != nil {
		return nil, precondition("app %q: there is one of that name already", r.App)
	}
	a := &app{name: r.App, container: r.Container, bundle: r.Bundle, settled: make(chan struct{})}
	s.apps[r.App] = a
	s.launches.Add(1)
	return a, nil
}

// settle ends the making of an app, which counts as failed if it is not added.
func (s *Supervisor) settle(a *app) {
	s.mu.Lock()
	_ = s.moveLocked(a, stepFail) // illegal, and right to be, once it is added
	s.mu.Unlock()
	close(a.settled)
	s.launches.Done()
}

// app returns a settled app by its name.
func (s *Supervisor) app(ctx context.Context, name string) (*app, error) {
	s.mu.Lock()
	a := s.apps[name]
	s.mu.Unlock()
	if a != nil {
		select {
		case <-a.settled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if a == nil || s.stateOf(a) == removed {
		return nil, notFound("app %s: there is no such app", name)
	}
	return a, nil
}

// stateOf returns an app's state as it was just now.
func (s *Supervisor) stateOf(a *app) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.state
}

// move takes an app a step further, or returns an error that says why not.
func (s *Supervisor) move(a *app, t step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moveLocked(a, t)
}

func (s *Supervisor) moveLocked(a *app, t step) error {
	next, ok := a.state.next(t)
	if !ok {
		return a.state.illegal(t, a.name)
	}
	a.state = next
	if next == removed {
		delete(s.apps, a.name)
	}
	return nil
}

// runHooks runs the hooks of the runtime namespace of one or more kinds, in order, until one
// fails. They run in this process's namespaces, that is the host's, with the state on stdin.
func (s *Supervisor) runHooks(ctx context.Context, a *app, status specs.ContainerState, pid int, kinds ...hookKind) error {
	state := container.State(a.spec, a.container, a.bundle, string(status), pid)
	for _, k := range kinds {
		for i, h := range k.hooks {
			if err := s.runHook(ctx, h, a.bundle, state); err != nil {
				return fmt.Errorf("%s hook %d (%s): %w", k.name, i, h.Path, err)
			}
		}
	}
	return nil
}

type hookKind struct {
	name  string
	hooks []specs.Hook
}

package supervisor

import (
	"context"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/netdevice"
)

// app is an app of the pod.
type app struct {
	name      string
	container string // containerd's id
	bundle    string
	// added is closed when app/add has succeeded or has cleaned up.
	added chan struct{}

	// app/add sets these fields before the app is added. They do not change after that.
	spec *specs.Spec
	init *initProcess
	// chroot is the path of the root of an app without a mount namespace, or "".
	chroot string
	joins  int // CLONE_NEW* flags of the namespaces that an exec has to join
	// devices are the moved network devices of an app that is still being made.
	devices *netdevice.Moved

	state state // guarded by Supervisor.mu
}

// reserve reserves a name for an app that is being made. The caller calls finishAdd.
func (s *Supervisor) reserve(r *abi.Request) (*app, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, serve.Precondition("app %s: the pod is being stopped", r.App)
	}
	if r.App == "" || s.apps[r.App] != nil {
		return nil, serve.Precondition("app %q: there is one of that name already", r.App)
	}
	a := &app{name: r.App, container: r.Container, bundle: r.Bundle, added: make(chan struct{})}
	s.apps[r.App] = a
	s.making.Add(1)
	return a, nil
}

// finishAdd ends app/add. If the app was not added before, app/add has failed.
func (s *Supervisor) finishAdd(a *app) {
	s.mu.Lock()
	_ = s.moveLocked(a, stepFail) // illegal, and without effect, if the app was added
	s.mu.Unlock()
	close(a.added)
	s.making.Done()
}

// app returns an app by its name. It waits until the app's app/add is over.
func (s *Supervisor) app(ctx context.Context, name string) (*app, error) {
	s.mu.Lock()
	a := s.apps[name]
	s.mu.Unlock()
	if a != nil {
		select {
		case <-a.added:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if a == nil || s.stateOf(a) == removed {
		return nil, serve.NotFound("app %s: there is no such app", name)
	}
	return a, nil
}

// stateOf returns an app's present state.
func (s *Supervisor) stateOf(a *app) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.state
}

// move makes a step of an app. If the step is illegal, it returns an error that gives the
// reason.
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

// runHooks runs the hooks of the runtime namespace of one or more kinds, in order, until
// one fails. They run in this process's namespaces, which are the host's, with the app's
// state on stdin.
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

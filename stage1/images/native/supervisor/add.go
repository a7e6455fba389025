package supervisor

import (
	"context"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
)

// add serves app/add: it makes the app's first process, blocked before its exec. If it fails,
// or ctx ends before the process is ready, nothing of the app remains.
func (s *Supervisor) add(ctx context.Context, c *wire.Call, r *abi.Request) error {
	a, err := s.reserve(r)
	if err != nil {
		return err
	}
	defer s.settle(a)
	if a.spec, err = decodeSpec(r.Spec); err != nil {
		return err
	}
	if l := a.spec.Linux; l != nil {
		l.Seccomp = s.filters.Share(l.Seccomp)
	}
	if err := s.begin(ctx, a, c, r); err != nil {
		return err
	}
	l := a.launch
	defer l.leave()
	err = l.ready(ctx)
	if err == nil {
		a.joins, err = differing(l.child.PID())
	}
	if err == nil {
		err = s.commit(a)
	}
	if err != nil {
		l.words.Close()
		return explain(ctx, err, l.child.PID(), l.child.Drop())
	}
	report(c.Ready, l.child.PID(), l.child.StartTime())
	return nil
}

// begin starts the process of an app.
func (s *Supervisor) begin(ctx context.Context, a *app, c *wire.Call, r *abi.Request) error {
	files, err := stdio(c, r)
	if err != nil {
		return err
	}
	p := &fork.Process{}
	defer func() { closeJoins(p.Joins) }()
	if err := enlist(p, a.spec.Linux); err != nil {
		return err
	}
	groups, err := openCgroups(r.Cgroup)
	if err != nil {
		return err
	}
	defer func() { groups.close() }()
	inside := *r // the request as init is to see it
	var enclose func(*fork.Process) (*Enclosed, error)
	if s.enclosure != nil {
		if err := groups.byHand(); err != nil {
			return err
		}
		inside.Rootfs = s.enclosure.Root(r.Rootfs, a.spec)
		enclose = func(p *fork.Process) (*Enclosed, error) { return s.enclosure.Enclose(p, r, a.spec) }
	}
	p.Cgroup = groups.dir
	prepared, err := container.PrepareApp(container.AppRequest{Request: inside, Spec: a.spec, CgroupFiles: groups.tasks, Filters: &s.filters})
	if err != nil {
		return err
	}
	a.launch = &launch{prepared: prepared, console: r.ConsoleSocket, enclose: enclose}
	a.launch.hooks = func(ctx context.Context) error { return s.creating(ctx, a) }
	if err := a.launch.start(ctx, s, "app "+a.name, files, p); err != nil {
		prepared.Close()
		a.launch.leave()
		return err
	}
	return nil
}

// creating runs the hooks that need the namespaces.
func (s *Supervisor) creating(ctx context.Context, a *app) error {
	h := a.spec.Hooks
	if h == nil {
		return nil
	}
	return s.runHooks(ctx, a, specs.StateCreating, a.launch.child.PID(),
		hookKind{"prestart", h.Prestart}, hookKind{"createRuntime", h.CreateRuntime})
}

// commit makes the app added. From then on its exit is recorded and announced.
func (s *Supervisor) commit(a *app) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopping
	}
	if err := s.moveLocked(a, stepReady); err != nil {
		return err
	}
	s.keep(name{app: a.name}, a.launch.child)
	return nil
}

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// errCallerGone is the error of an app/add or enter that was undone because its caller has hung up.
var errCallerGone = errors.New("the caller has gone")

// add serves app/add: it makes the app's first process, blocked before its exec. If it fails,
// or ctx ends before the process is ready, nothing of the app remains.
func (s *Supervisor) add(ctx context.Context, c *serve.Asked) error {
	return explainUserNamespace(s.addApp(ctx, c))
}

func (s *Supervisor) addApp(ctx context.Context, c *serve.Asked) error {
	r := c.Request
	a, err := s.reserve(r)
	if err != nil {
		return err
	}
	defer s.finishAdd(a)
	if a.spec, err = decodeSpec(r.Spec); err != nil {
		return err
	}
	if l := a.spec.Linux; l != nil {
		l.Seccomp = s.filters.Share(l.Seccomp)
	}
	if err := s.begin(ctx, a, c); err != nil {
		return err
	}
	i := a.init
	defer i.leave()
	err = i.ready(ctx)
	if err == nil && (ctx.Err() != nil || c.Gone()) {
		// The caller's next call may have come before this one, and not have found the app.
		err = errCallerGone
	}
	if err == nil && s.Spawner != nil {
		a.joins, err = differing(i.child.PID())
	}
	if err == nil {
		err = s.commit(a)
	}
	if err != nil {
		i.close()
		return a.returnNetDevices(explain(ctx, err, i.child.PID(), i.child.Drop()))
	}
	a.devices.Close()
	c.Ready(abi.Ready{PID: i.child.PID(), StartTime: i.child.StartTime(), Recorder: abi.RecorderStage1})
	return nil
}

// begin starts the process of an app.
func (s *Supervisor) begin(ctx context.Context, a *app, c *serve.Asked) error {
	r := c.Request
	files, err := stdio(c)
	if err != nil {
		return err
	}
	p := &fork.Process{}
	defer func() { closeJoins(p.Joins) }()
	if err := enlist(p, a.spec.Linux); err != nil {
		return err
	}
	if a.joins, err = apart(p, a.spec.Linux); err != nil {
		return err
	}
	groups, err := openCgroups(r.Cgroup)
	if err != nil {
		return err
	}
	defer func() { groups.close() }()
	inside := *r // the request with the paths that init sees
	var prepare func(*fork.Process) (*Spawn, error)
	if s.Spawner != nil {
		if err := groups.byHand(); err != nil {
			return err
		}
		if inside.Rootfs, err = s.Spawner.Root(r, a.spec); err != nil {
			return err
		}
		prepare = func(p *fork.Process) (*Spawn, error) { return s.Spawner.Prepare(p, r, a.spec) }
	}
	if !slices.ContainsFunc(a.spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.MountNamespace }) {
		a.chroot = r.Rootfs
	}
	p.Cgroup, p.Tasks = groups.dir, groups.tasks
	a.init = &initProcess{console: func(master *os.File) error { return s.Console(r, master) }, prepareSpawn: prepare}
	prepareApp := func() (err error) {
		defer s.Children.Expect()() // for a user namespace, PrepareApp makes a process
		a.init.prepared, err = container.PrepareApp(container.AppRequest{
			Request: inside, Spec: a.spec, CgroupFiles: groups.files, Tasks: len(groups.tasks), Filters: &s.filters,
		})
		return explainChroot(err, p)
	}
	if err := prepareApp(); err != nil {
		return err
	}
	a.init.netDevices = a.takeNetDevices
	a.init.listener = func(pid int, listener *os.File) error { return s.tellAgent(a, pid, listener) }
	a.init.hooks = func(ctx context.Context) error { return s.creating(ctx, a) }
	if s.Spawner == nil {
		kind, why, err := s.beginByPlan(ctx, a, files, p)
		if why == "" {
			return err
		}
		s.countInit("apps", kind, why)
		if a.init.prepared == nil {
			if err := prepareApp(); err != nil {
				return err
			}
		}
	}
	if err := a.init.start(ctx, s, "app "+a.name, files, p); err != nil {
		a.init.prepared.Close()
		a.init.leave()
		return explainChroot(err, p)
	}
	return nil
}

// explainChroot adds to the error of a process that was not made that the kernel makes no user namespace
// for a process whose root has been changed.
func explainChroot(err error, p *fork.Process) error {
	if p.New&unix.CLONE_NEWUSER != 0 && errors.Is(err, unix.EPERM) && proc.IsChrooted() {
		return fmt.Errorf("%w: containerd was started by chroot(8), and the kernel makes no user namespace there", err)
	}
	return err
}

// creating runs the hooks that have to run after the namespaces were made.
func (s *Supervisor) creating(ctx context.Context, a *app) error {
	h := a.spec.Hooks
	if h == nil {
		return nil
	}
	return s.runHooks(ctx, a, specs.StateCreating, a.init.child.PID(),
		hookKind{"prestart", h.Prestart}, hookKind{"createRuntime", h.CreateRuntime})
}

// commit marks the app as added. From then on its exit is recorded and announced.
func (s *Supervisor) commit(a *app) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopping
	}
	if err := s.moveLocked(a, stepReady); err != nil {
		return err
	}
	s.keep(name{app: a.name}, a.init.child)
	return nil
}

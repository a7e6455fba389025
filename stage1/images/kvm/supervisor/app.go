package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// maxOOM is how many notices of OOM kills of an app are passed on. A machine can send more.
const maxOOM = 100

// app is an app of the pod.
type app struct {
	name  string
	added chan struct{} // closed when app/add has succeeded or has cleaned up

	// app/add sets these fields before the app is added. They do not change after that.
	files *Files  // its part of the share
	disks []*disk // that its root is made of; without any, that is in the share
	made  *channel.Root
	hooks *hooks
	// writes is set if it may write a disk of the machine.
	writes bool

	volumes []*volumeDisk

	// limits are those of its cgroup. Stage 0 makes one call at a time that changes them.
	limits limits

	// Guarded by Supervisor.mu.
	main  *process
	execs map[string]*process // by id; of those that have not ended
	ooms  int
	// demand is the app's part of the machine's size.
	demand demand
}

// errStopping is the error of calls after stop.
var errStopping = serve.Precondition("the pod is being stopped")

// app returns an app by its name. It waits until its app/add is over.
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
		s.mu.Lock()
		if s.apps[name] != a {
			a = nil
		}
		s.mu.Unlock()
	}
	if a == nil {
		return nil, serve.NotFound("app %s: there is no such app", name)
	}
	return a, nil
}

// reserve reserves a name for an app that is being made.
func (s *Supervisor) reserve(r *abi.Request) (*app, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, errStopping
	}
	if !isName(r.App) || s.apps[r.App] != nil {
		return nil, serve.Precondition("app %q: there is one of that name already, or it is no name", r.App)
	}
	a := &app{name: r.App, added: make(chan struct{}), execs: map[string]*process{}}
	s.apps[r.App] = a
	s.making.Add(1)
	return a, nil
}

// isName reports whether a name of an app can be the name of a directory.
func isName(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= 200
}

// add serves app/add. If it fails, nothing of the app remains on the host; the agent has undone
// its own part.
func (s *Supervisor) add(ctx context.Context, c *serve.Asked) (err error) {
	a, err := s.reserve(c.Request)
	if err != nil {
		return err
	}
	defer s.making.Done()
	defer close(a.added)
	defer func() {
		if err != nil {
			s.forget(a)
			s.shrink(ctx)
		}
	}()
	dir := s.Share.Name(a.name)
	spec, binds, err := translate(c.Request, dir, s.insideOf)
	if err != nil {
		return err
	}
	defer closeBinds(binds)
	users, err := s.join(ctx, spec.netns, spec.users)
	if err != nil {
		return err
	}
	if err := spec.joinNetwork(users); err != nil {
		return err
	}
	if len(c.Mounts) > 0 {
		if err := s.makeRoot(ctx, a, c.Mounts); err != nil {
			return err
		}
	}
	if err := s.attach(ctx, a, spec.volumes); err != nil {
		return err
	}
	a.writes = slices.ContainsFunc(a.disks, func(d *disk) bool { return !d.ReadOnly }) ||
		slices.ContainsFunc(spec.volumes, func(v *volume) bool { return !v.readOnly })
	if a.files, err = s.Share.Add(dir, binds); err != nil {
		return fmt.Errorf("share the files of app %s: %w", a.name, err)
	}
	a.hooks = hooksOf(c.Request, spec)
	a.limits = a.limits.with(spec.Linux.Resources)
	s.setDemand(a, a.limits.demand())
	if err := s.fit(ctx); err != nil {
		return err
	}
	g := inside(c.Request)
	g.Rootfs = a.root()
	limit(spec.Process)
	if g.Spec, err = json.Marshal(spec.Spec); err != nil {
		return err
	}
	h := channel.Header{Call: g, Root: a.made, Sysctl: spec.sysctl, Shm: spec.shm}
	for _, v := range spec.volumes {
		h.Volumes = append(h.Volumes, v.Volume)
	}
	return s.process(ctx, c, a, h)
}

// root returns the path of the app's root in the machine.
func (a *app) root() string {
	if a.made != nil {
		return a.made.Path(a.name)
	}
	return a.files.Root()
}

// proxyRoot returns the root of the proxy of the app, or of an exec of it, as startProxy wants it. A root
// that is made of disks of the machine is not mounted on the host. Proxies of execs may outlive the app, and then must
// not keep its root in use.
func (a *app) proxyRoot(exec string) (*os.File, error) {
	if a.made != nil || exec != "" {
		return nil, nil
	}
	return a.files.OpenRoot()
}

// insideOf returns the pid in the machine of the app, or the holder, whose proxy has a pid, or 0. The
// proxy of an app that has not ended is a child that was not reaped, so its pid is no other process's.
// The proxy of the holder ends when stage 0 ends the pod, which then adds no app.
func (s *Supervisor) insideOf(proxy int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.Sandbox; p != nil && p.proxy != nil && p.proxy.PID() == proxy {
		return p.holder
	}
	for _, a := range s.apps {
		if p := a.main; p != nil && !p.hasEnded() && p.proxy.PID() == proxy {
			return p.inside
		}
	}
	return 0
}

// forget drops an app that was not added, or has ended and is removed.
func (s *Supervisor) forget(a *app) {
	s.mu.Lock()
	if s.apps[a.name] == a {
		delete(s.apps, a.name)
	}
	s.mu.Unlock()
	a.files.Remove()
	s.unplug(a.disks...)
	s.detach(a)
}

// enter serves enter.
func (s *Supervisor) enter(ctx context.Context, a *app, c *serve.Asked) error {
	s.mu.Lock()
	var err error
	switch {
	case s.stopping:
		err = errStopping
	case c.Exec == "" || a.execs[c.Exec] != nil:
		err = noExecID(a, c.Exec)
	case a.main.hasEnded():
		err = serve.Precondition("app %s: cannot execute a program in a stopped process", a.name)
	default:
		s.making.Add(1)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer s.making.Done()
	g := inside(c.Request)
	if g.Process, err = limited(g.Process); err != nil {
		return fmt.Errorf("exec %s of app %s: %w", c.Exec, a.name, err)
	}
	return s.process(ctx, c, a, channel.Header{Call: g})
}

// process makes the process of an app or exec in the machine, and its proxy. The process is
// registered before the machine knows of it, because its end may be announced before the
// call has returned.
func (s *Supervisor) process(ctx context.Context, c *serve.Asked, a *app, h channel.Header) (err error) {
	p, err := s.newProcess(ctx, c, a)
	if err != nil {
		return err
	}
	if err := s.register(p); err != nil {
		p.drop()
		return err
	}
	defer func() {
		if err != nil {
			s.mu.Lock()
			if c.Exec != "" {
				delete(a.execs, c.Exec)
			}
			s.mu.Unlock()
			p.drop()
		}
	}()
	ready := false
	h.Streams = p.numbers()
	_, err = s.ask(ctx, h, func(pid int) error {
		s.mu.Lock()
		p.inside = pid
		s.mu.Unlock()
		ready = true
		return nil
	})
	switch {
	case err != nil:
		return err
	case !ready:
		err = fmt.Errorf("%w: a process is made and not ready", channel.ErrMessage)
		s.giveUp(err)
		return err
	}
	if c.Exec == "" {
		err = s.runHooks(ctx, p, specs.StateCreating, hookKind{"prestart", a.hooks.Prestart}, hookKind{"createRuntime", a.hooks.CreateRuntime})
	}
	if err == nil && c.Gone() {
		err = errors.New("the caller has gone")
	}
	if err != nil {
		return errors.Join(err, s.undo(context.WithoutCancel(ctx), p))
	}
	c.Ready(p.commit())
	return nil
}

func noExecID(a *app, exec string) error {
	return serve.Precondition("exec %q of app %s: there is one of that id already, or it is no id", exec, a.name)
}

// register adds a process to its app. Another call may have registered an exec of that id since enter has looked.
func (s *Supervisor) register(p *process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.exec == "":
		p.app.main = p
	case p.app.execs[p.exec] != nil:
		return noExecID(p.app, p.exec)
	default:
		p.app.execs[p.exec] = p
	}
	return nil
}

// undo ends a process in the machine whose call fails on the host.
func (s *Supervisor) undo(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.ask(ctx, channel.Header{Call: p.killing()}, nil)
	if p.exec != "" {
		return err
	}
	for _, entrypoint := range []abi.Entrypoint{abi.AppStop, abi.AppRm} {
		_, e := s.ask(ctx, channel.Header{Call: &abi.Request{Version: abi.Version, Entrypoint: entrypoint, App: p.app.name}}, nil)
		err = errors.Join(err, e)
	}
	return err
}

// start serves app/start. If a poststart hook fails, the app is killed.
func (s *Supervisor) start(ctx context.Context, a *app, r *abi.Request) error {
	if a.main.hasEnded() { // its proxy was killed, and the machine may not have heard of that
		return serve.Precondition("app %s: it has ended", a.name)
	}
	if err := s.followForStart(ctx); err != nil { // a client or a hook may have attached networks since app/add
		return err
	}
	if err := s.pass(ctx, r); err != nil {
		return err
	}
	err := s.runHooks(ctx, a.main, specs.StateRunning, hookKind{"poststart", a.hooks.Poststart})
	if err != nil {
		_, stop := s.ask(context.WithoutCancel(ctx), channel.Header{Call: a.stopping()}, nil)
		err = errors.Join(err, stop)
	}
	return err
}

// stopping is the call that ends every process of the app, and waits for the end.
func (a *app) stopping() *abi.Request {
	return &abi.Request{Version: abi.Version, Entrypoint: abi.AppStop, App: a.name}
}

// stopApp serves app/stop: it returns when the end of the app is recorded.
func (s *Supervisor) stopApp(ctx context.Context, a *app, r *abi.Request) error {
	if err := s.pass(ctx, r); err != nil {
		a.main.end(abi.Status{Code: proc.KilledCode, Signal: 9, Time: time.Now()})
		return err
	}
	select {
	case <-a.main.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// remove serves app/rm.
func (s *Supervisor) remove(ctx context.Context, a *app, r *abi.Request) error {
	if !a.main.hasEnded() {
		return serve.Precondition("app %s: it is running", a.name)
	}
	err := s.pass(ctx, r)
	if serve.CodeOf(err) == abi.ExitFailedPrecondition { // its proxy was killed, and the machine is still ending it
		if _, err = s.ask(ctx, channel.Header{Call: a.stopping()}, nil); err == nil {
			err = s.pass(ctx, r)
		}
	}
	// Stage 0 removes an app once, whatever the machine says.
	a.main.closeStreams()
	select { // until the proxy ends, which was told to, it keeps the root in use
	case <-a.main.proxy.Done():
	case <-ctx.Done():
	}
	s.forget(a)
	s.shrink(ctx)
	return err
}

// Stop ends every process of the pod, and then the connection to its machine. Unless it is forced, the machine first writes back
// what it has cached, for stopTime at the most.
func (s *Supervisor) Stop(ctx context.Context, force bool) {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	if !force {
		ctx, cancel := context.WithTimeout(ctx, s.stopTime())
		if _, err := s.ask(ctx, channel.Header{PowerOff: true}, nil); err != nil { // the machine is ended in any case
			fmt.Fprintf(s.Log, "the machine does not end in order: %v\n", err)
		}
		cancel()
	}
	s.cancel(errStopping)
	_ = s.Session.Close() // ends the calls that make a process
	s.making.Wait()
	s.EndAll()
}

// stopTime is how long a machine has to end its apps and to write back what it has cached for their disks. Stage 0 waits
// ten seconds, or 1.5 if containerd has called delete.
func (s *Supervisor) stopTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.apps {
		select {
		case <-a.added:
		default:
			continue // it has written nothing
		}
		if a.writes {
			return 8 * time.Second
		}
	}
	return time.Second
}

// EndAll records the end of every process that has not ended: the machine has, and the connection to its
// agent is closed.
func (s *Supervisor) EndAll() {
	s.cancel(errStopping)
	s.mu.Lock()
	s.stopping = true
	var all []*process
	for _, a := range s.apps {
		for _, p := range a.execs {
			all = append(all, p)
		}
		if a.main != nil {
			all = append(all, a.main)
		}
	}
	s.mu.Unlock()
	for _, p := range all {
		p.end(abi.Status{Code: proc.KilledCode, Signal: 9, Time: time.Now()})
		p.closeStreams()
		_ = p.proxy.Kill() // one that was stopped does not kill itself
		_ = p.proxy.Wait()
	}
	s.Sandbox.end()
	s.making.Wait()
	s.Network.forward.end()
}

// heed handles a notice of the agent.
func (s *Supervisor) heed(line []byte) error {
	now := time.Now() // the guest's clock is the guest's
	n, err := abi.ParseNotice(string(line), now)
	if err != nil {
		return err
	}
	s.mu.Lock()
	a := s.apps[n.App]
	var p *process
	oom := false
	switch {
	case a == nil:
	case n.OOM:
		oom = a.ooms < maxOOM
		a.ooms++
	case n.Exec == "":
		p = a.main
	default:
		p = a.execs[n.Exec]
	}
	s.mu.Unlock()
	if oom {
		_, _ = s.Notices.Write(abi.Notice{OOM: true, App: a.name}.Format())
	}
	if p == nil {
		return nil // it has ended, or is none
	}
	status := abi.Status{Code: proc.KilledCode, Time: now}
	if n.Status != nil {
		status = *n.Status
		status.Time = now
	}
	p.end(status)
	return nil
}

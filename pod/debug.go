package pod

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// debugEndLimit is how long the process of a debug app may take to end after SIGKILL.
const debugEndLimit = 10 * time.Second

// Debug is a DebugApp, or a double of it.
type Debug interface {
	Facts() DebugFacts
	Create(context.Context, DebugConfig) error
	Start(context.Context) (pid int, err error)
	Wait(context.Context) (Exit, error)
	Signal(context.Context, int) error
	Resize(Size) error
	CloseStdin() error
	Note(DebugNote)
	End(context.Context) error
}

var _ Debug = (*DebugApp)(nil)

// Facts returns the facts of the debug app.
func (d *DebugApp) Facts() DebugFacts { return d.DebugFacts }

// AddDebug makes the directory of a debug app for a running target, and returns the facts that
// its spec needs. The caller must call End. If the pod's stage1 cannot have such apps, the
// error unwraps to errdefs.ErrNotImplemented and names the stage1.
func (p *Pod) AddDebug(target AppID) (Debug, error) {
	t, err := p.app(target)
	if err != nil {
		return nil, err
	}
	if err := t.canBeDebugged(); err != nil {
		return nil, err
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	d := &DebugApp{pod: p, target: t, turn: newTurn()}
	d.end = d.End
	d.ID = AppID(fmt.Sprintf("rktctl-%x", random))
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.CgroupsPath = t.cgroup.Beside(string(d.ID))
	d.turn <- struct{}{} // the pod may end the debug app from now on, and has to find what follows
	if err := p.admitDebug(d); err != nil {
		return nil, err
	}
	fail := func(err error) (Debug, error) {
		<-d.turn
		return nil, errors.Join(fmt.Errorf("debug container %s: %w", target, err), d.End(context.Background()))
	}
	if d.Dir, err = t.session.dir.MakeDebug(string(d.ID)); err != nil {
		return fail(err)
	}
	if err := d.pin(); err != nil {
		return fail(err)
	}
	<-d.turn
	return d, nil
}

// canBeDebugged refuses an app whose stage1 makes no further apps in a pod, or whose process
// is not in the app's namespaces.
func (a *app) canBeDebugged() error {
	s := a.session.stage1
	why := ""
	switch {
	case !s.Has(abi.AppAdd):
		why = "adds no app to a running pod"
	case s.Owns(abi.OwnProcesses), s.Owns(abi.OwnNamespaces):
		why = "keeps its apps in namespaces of its own, which the host cannot join"
	case s.Owns(abi.OwnRootfs):
		why = "mounts the root file systems of its apps itself"
	case s.Owns(abi.OwnResources):
		why = "has no cgroup of the host for an app"
	default:
		return nil
	}
	return fmt.Errorf("container %s cannot be debugged: its stage1 %s %s: %w", a.id, s.Name(), why, errdefs.ErrNotImplemented)
}

// admitDebug makes the debug app visible to the end of its target. The state of the target is
// read under the same lock as the list, and a deletion first changes the state: so the deletion
// finds the debug app, or admitDebug refuses it.
func (p *Pod) admitDebug(d *DebugApp) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.owner.admit("debug app of container " + string(d.target.id)); err != nil {
		return err
	}
	if s := d.target.status(); s.State != Running {
		return fmt.Errorf("cannot debug a %s container: %s: %w", s.State, d.target.id, errdefs.ErrFailedPrecondition)
	}
	if p.debugs == nil {
		p.debugs = map[*DebugApp]struct{}{}
	}
	p.debugs[d] = struct{}{}
	return nil
}

// pinnable are the namespaces that a debug app shares with its target, in the order of the
// spec, and their files below /proc/PID/ns.
var pinnable = [...]struct {
	kind specs.LinuxNamespaceType
	file string
}{
	{specs.UserNamespace, "user"},
	{specs.PIDNamespace, "pid"},
	{specs.NetworkNamespace, "net"},
	{specs.IPCNamespace, "ipc"},
	{specs.UTSNamespace, "uts"},
}

// pin opens the target's namespaces. The target may end at any time, and its pid may then be
// that of a process of the host, so the paths of Namespaces lead to the open files. A namespace
// that is the host's is left out: an app without it in its spec is in it.
//
// runc 1.2 to 1.5.1 takes each path that begins with /proc/PID for one of a process in the user namespace, reads
// the maps of that process, here of the shim, and refuses those of the spec (GetUserNamespaceMappings in its
// libcontainer). It opens a path that is spelt in another way.
func (d *DebugApp) pin() error {
	pid, start, err := d.target.process.alive()
	if err != nil {
		return err
	}
	for _, n := range pinnable {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, n.file))
		if err != nil {
			return fmt.Errorf("its %s namespace: %w", n.kind, err)
		}
		d.pinned = append(d.pinned, f)
		its, err := f.Stat()
		if err != nil {
			return err
		}
		hosts, err := os.Stat("/proc/self/ns/" + n.file)
		if err != nil {
			return err
		}
		if !os.SameFile(its, hosts) {
			d.Namespaces = append(d.Namespaces, specs.LinuxNamespace{Type: n.kind, Path: fmt.Sprintf("/proc/./%d/fd/%d", os.Getpid(), f.Fd())})
		}
	}
	// The files are those of the target if it was alive after they were opened.
	if !proc.Alive(pid, start) {
		return fmt.Errorf("it has just ended: %w", errdefs.ErrFailedPrecondition)
	}
	return nil
}

func (d *DebugApp) unpin() {
	for _, f := range d.pinned {
		_ = f.Close()
	}
	d.pinned = nil
}

// Create makes the app, blocked before its exec. It is cancelled by End. If the stage1 has put the
// app into other namespaces than the target's, the error unwraps to errdefs.ErrNotImplemented.
func (d *DebugApp) Create(ctx context.Context, c DebugConfig) error {
	release, err := d.takeTurn(ctx)
	if err != nil {
		return errors.Join(err, c.Stdio.Close())
	}
	defer release()
	defer d.unpin()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	if d.current() != nil {
		return errors.Join(fmt.Errorf("debug app %s exists: %w", d.ID, errdefs.ErrAlreadyExists), c.Stdio.Close())
	}
	spec, err := ReadSpec(d.ID, d.Dir, c.Spec)
	if err != nil {
		return errors.Join(err, c.Stdio.Close())
	}
	a, err := newApp(d.pod, AppConfig{
		ID: d.ID, Bundle: d.Dir, Spec: spec, Rootfs: c.Rootfs, Stdio: c.Stdio, Terminal: c.Terminal, Tag: c.Tag, events: c.Events,
	})
	if err != nil {
		return errors.Join(err, c.Stdio.Close())
	}
	a.debugs = d.target.name
	d.pod.mu.Lock()
	d.app = a
	d.pod.mu.Unlock()
	var undo cleanup
	undo.add(c.Stdio.Close)
	if err := a.createIn(ctx, d.target.session, &undo); err != nil {
		_ = a.step(stepDeleted)
		return undo.run(fmt.Errorf("debug container %s: %w", d.target.id, err))
	}
	if err := d.joined(a); err != nil { // End removes the app
		return fmt.Errorf("debug container %s: %w", d.target.id, err)
	}
	return nil
}

// joined checks that the process of the app is in the namespaces of the target. A stage1 may make
// a machine of its own for each app, and ignore what it is asked to join.
func (d *DebugApp) joined(a *app) error {
	pid := a.status().PID
	for i, n := range pinnable {
		theirs, err := d.pinned[i].Stat()
		if err != nil {
			return err
		}
		its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, n.file))
		if err != nil {
			return fmt.Errorf("the %s namespace of the debug app: %w", n.kind, err)
		}
		if !os.SameFile(theirs, its) {
			return fmt.Errorf("its stage1 %s has made the debug app in another %s namespace: %w", d.target.session.stage1.Name(), n.kind, errdefs.ErrNotImplemented)
		}
	}
	return nil
}

// takeTurn waits for the turn of Create and End.
func (d *DebugApp) takeTurn(ctx context.Context) (release func(), err error) {
	select {
	case d.turn <- struct{}{}:
		if d.ctx.Err() != nil {
			<-d.turn
			break
		}
		return func() { <-d.turn }, nil
	case <-d.ctx.Done():
	case <-ctx.Done():
	}
	return nil, fmt.Errorf("debug app %s: its pod or its user has ended it: %w", d.ID, errdefs.ErrFailedPrecondition)
}

// current returns the app, or nil if Create was not called.
func (d *DebugApp) current() *app {
	d.pod.mu.Lock()
	defer d.pod.mu.Unlock()
	return d.app
}

// made returns the app if it has a process.
func (d *DebugApp) made() (*app, error) {
	if a := d.current(); a != nil && !a.in(Creating, Deleted) {
		return a, nil
	}
	return nil, fmt.Errorf("debug app %s: %w", d.ID, errdefs.ErrNotFound)
}

// Start runs the app's program and returns its pid.
func (d *DebugApp) Start(ctx context.Context) (int, error) {
	a, err := d.made()
	if err != nil {
		return 0, err
	}
	return a.startApp(ctx)
}

// Wait waits until the app's program has ended, or until ctx ends. A process of the target that traces the program can
// hide its exit. Then Wait returns an error that names the tracer.
func (d *DebugApp) Wait(ctx context.Context) (Exit, error) {
	a, err := d.made()
	if err != nil {
		return Exit{}, err
	}
	return a.waitUntraced(ctx)
}

// Signal sends a signal to the app's first process.
func (d *DebugApp) Signal(ctx context.Context, sig int) error {
	if sig < 1 || sig > maxSignal {
		return fmt.Errorf("signal %d is not one of 1 to %d: %w", sig, maxSignal, errdefs.ErrInvalidArgument)
	}
	a, err := d.made()
	if err != nil {
		return err
	}
	if sig == killSignal {
		return a.kill(ctx, true)
	}
	return a.signal(ctx, a.process, sig)
}

// Resize sets the size of the app's terminal. Before there is a terminal, the size is kept.
func (d *DebugApp) Resize(size Size) error {
	a, err := d.made()
	if err != nil {
		return err
	}
	return a.resize(size)
}

// CloseStdin ends the input of the app.
func (d *DebugApp) CloseStdin() error {
	a, err := d.made()
	if err != nil {
		return err
	}
	return a.stdio.CloseStdin()
}

// Note writes who debugs the target to the pod's journal: once before Create, and once with
// the exit after Wait.
func (d *DebugApp) Note(n DebugNote) {
	n.Target = string(d.target.id)
	c := d.target.call("")
	c.Request.App = string(d.target.name)
	d.target.session.stage1.NoteDebug(c, n)
}

// End kills and removes the debug app and its directory. It is idempotent; a second call
// waits for the first and returns the same error. But if a tracer keeps the app's process, End tries again: the end of
// the target, which ends the tracer, calls it.
func (d *DebugApp) End(ctx context.Context) error {
	d.ending.Lock()
	defer d.ending.Unlock()
	if d.ended {
		return d.endErr
	}
	if d.endErr == nil { // the first call
		d.cancel()
		d.turn <- struct{}{} // Create has returned, and no other one begins
		d.unpin()
	}
	d.endErr = d.takeDown(context.WithoutCancel(ctx))
	var traced *tracedError
	if d.ended = !errors.As(d.endErr, &traced); d.ended {
		d.pod.mu.Lock()
		delete(d.pod.debugs, d)
		d.pod.mu.Unlock()
	}
	return d.endErr
}

func (d *DebugApp) takeDown(ctx context.Context) error {
	var err error
	if a, _ := d.made(); a != nil {
		err = a.endNow(ctx)
	}
	if d.Dir != "" {
		err = errors.Join(err, d.target.session.dir.RemoveDebug(string(d.ID)))
	}
	if err != nil {
		return fmt.Errorf("remove debug app %s of container %s: %w", d.ID, d.target.id, err)
	}
	return nil
}

// endNow kills an app in any state, waits for its end and deletes it.
func (a *app) endNow(ctx context.Context) error {
	limit, cancel := context.WithTimeout(ctx, debugEndLimit)
	defer cancel()
	if err := a.kill(limit, true); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) {
		a.log(ctx, err).Warnf("container %s: cannot be killed by its stage1", a.id)
		if err := a.cgroup.Kill(limit); err != nil {
			return err
		}
	}
	if _, err := a.waitUntraced(limit); err != nil {
		return err
	}
	_, err := a.delete(ctx)
	return err
}

package immutable

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// OneApp calls the entrypoints of an image whose pods have one app each, which `run`
// executes. The process of `run` exists from the beginning, as a launcher that holds the
// lock until the app is started. It is both the pod's supervisor and the app's first
// process. The image decides whether `run` starts the app or becomes it.
//
//	Run ──► Add: cgroup, streams, manifests ──► app/start: execve of `run`
type OneApp struct {
	*InSpace
	// Recorded, if set, translates a status that the stage1 has recorded.
	Recorded func(abi.Status) abi.Status

	mu  sync.Mutex
	run *Launched
	app *App
}

var _ pod.Stage1 = (*OneApp)(nil)

// Open opens images of interface version 7 whose pods have one app. It is a stage1.Door.
func Open(i *image.Image, name string, children *proc.Children, rules stage1.Rules) pod.Stage1 {
	if i.RktABI() || i.Mutable() {
		return nil
	}
	s := stage1.New(i, name, children)
	s.Abide(rules)
	return &OneApp{InSpace: NewInSpace(s)}
}

// App is the app of a pod with one app.
type App struct {
	Call  pod.Call
	ended chan abi.Status // gets the status of the app
}

// Has reports whether the image has an entrypoint that is called for an immutable pod.
func (s *OneApp) Has(e abi.Entrypoint) bool {
	switch e {
	case abi.AppAdd, abi.AppStart, abi.AppStop, abi.AppRm, abi.Attach:
		return false
	}
	return s.Stage1.Has(e)
}

// Run starts the launcher. A pod of one app cannot be a sandbox.
func (s *OneApp) Run(_ context.Context, c pod.Call, lock *os.File) (*pod.Supervisor, error) {
	if c.Request.Sandbox != nil {
		return nil, s.Refused("a pod of it is one container: it cannot be a sandbox for others", errdefs.ErrNotImplemented)
	}
	p, sup, err := s.Launch(c, lock, s.over)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.run = p
	s.mu.Unlock()
	return sup, nil
}

// over delivers the exit of the app, when the process of the pod has ended.
func (s *OneApp) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.app != nil {
		s.app.ended <- s.exit(s.run, s.app)
	}
}

// exit returns the exit of the app. If `run` has become the app, it is the exit of `run`.
// Otherwise it is the status that the image has recorded, or the exit of `run` if there is
// none.
func (s *OneApp) exit(p *Launched, a *App) abi.Status {
	k := p.Call
	leader, err := ReadPID(k.Dir + "/" + PidFile)
	became := err == nil && leader == k.Child.PID()
	if p.Started.Load() && !became {
		st, err := abi.ReadStatus(stage1.StatusDir(k.Dir), a.Call.Request.App, "")
		if err == nil && s.Recorded != nil {
			st = s.Recorded(st)
		}
		if err == nil {
			return st
		}
	}
	return k.Exit
}

// Running returns the pod's process and its app; both may be nil.
func (s *OneApp) Running() (*Launched, *App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run, s.app
}

// Add prepares the pod's only app. Its process is the launcher.
func (s *OneApp) Add(ctx context.Context, c pod.Call, stdio [3]*os.File) (_ *pod.Process, err error) {
	c.Request.Entrypoint = abi.AppAdd
	s.mu.Lock()
	p := s.run
	if p == nil || s.app != nil {
		s.mu.Unlock()
		return nil, s.Refused("it is immutable: a pod of it has one container, and this one has it already", errdefs.ErrFailedPrecondition)
	}
	s.app = &App{Call: c, ended: make(chan abi.Status, 1)}
	ended := s.app.ended
	s.mu.Unlock()

	k, err := s.Compose(c, false)
	if err != nil {
		return nil, s.Refused(err.Error(), err)
	}
	if err := CheckProgram(c.Request.Rootfs, k.Spec.Process); err != nil {
		return nil, s.Refused(err.Error(), err)
	}
	console, err := s.prepare(ctx, p, c, k, stdio)
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", k.Name, err)
	}
	return &pod.Process{
		PID: p.Call.Child.PID(), StartTime: p.pidfd.StartTime(), Recorder: pod.RecordedByCall,
		Console: console, Ended: ended,
	}, nil
}

// prepare makes the app's files and mounts, and makes the launcher enter the app's cgroup
// and network. It returns the console, if there is one.
func (s *OneApp) prepare(ctx context.Context, p *Launched, c pod.Call, k *Composition, stdio [3]*os.File) (*os.File, error) {
	if err := disk.LockManifest(c.Dir, k.Write); err != nil {
		return nil, err
	}
	if err := s.MountRoot(c.Request.Rootfs, k); err != nil {
		return nil, err
	}
	if err := s.MountVolumes(k, c.Request.Bundle); err != nil {
		return nil, err
	}
	streams, err := OpenStreams(stdio, c.Request.Terminal, k.Spec.Process)
	if err != nil {
		return nil, err
	}
	defer streams.Close()
	p.Call.Interactive = c.Request.Terminal || stdio[0] != nil
	limit, cancel := context.WithTimeout(ctx, s.Limit(abi.AppAdd))
	defer cancel()
	err = p.Control.Join(limit, launch.Join{
		Cgroups: c.Request.Cgroup.Dirs, Unified: c.Request.Cgroup.Unified, Network: Network(k.Spec), Terminal: c.Request.Terminal,
	}, streams.Files)
	if err != nil {
		return nil, err
	}
	return streams.Take(), nil
}

// Invoke executes an entrypoint, or does its work in stage 0.
func (s *OneApp) Invoke(ctx context.Context, c pod.Call) error {
	p, a := s.Running()
	switch e := c.Request.Entrypoint; {
	case e == abi.AppStart && a != nil:
		return s.StartApp(ctx, p, a, func(ctx context.Context) error {
			_, err := p.Call.AwaitReady(ctx)
			return err
		})
	case e == abi.Stop && p != nil && !p.Runs():
		// `run` was not executed yet, or has ended. Another process may have the pid that
		// the file pid names.
		return p.Signal(syscall.SIGKILL)
	}
	return s.Reach(c, func() error { return s.Stage1.Invoke(ctx, c) })
}

// StartApp makes the launcher execute `run`, and waits until ready returns.
func (s *OneApp) StartApp(ctx context.Context, p *Launched, a *App, ready func(context.Context) error) error {
	p.Starting.Lock()
	defer p.Starting.Unlock()
	k := p.Call
	k.Call = a.Call
	k.Request.Entrypoint, k.Request.Version = abi.Run, abi.Version
	k.Began = time.Now()
	k.Trace(ctx)
	k.Args = s.Dialect.Arguments(k)
	err := MarkStarted(k.Dir, k.Request.App)
	if err == nil {
		err = p.Execute(ctx, ready)
	}
	if err != nil {
		return p.Failed(err)
	}
	k.Journal(journal.Ready)
	p.Settle()
	return nil
}

// Enter executes `enter`.
func (s *OneApp) Enter(ctx context.Context, c pod.Call, stdio [3]*os.File) (*pod.Process, error) {
	c.Leader = s.Leader(c)
	return s.Stage1.Enter(ctx, c, stdio)
}

package stage1

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/launch"
)

// Immutable calls the entrypoints of an image whose pods have one app each, which
// `run` executes. It implements pod.Stage1 by having that one process from the
// beginning: a launcher keeps the lock until the app is started, and then becomes
// `run`, as rkt's stage 0 did.
//
//	Run ──► Add: cgroup, streams, manifests ──► app/start: execve of `run`
//
// Its process is the pod's supervisor and the app's first process alike. What
// `run` makes of it is the image's business.
type Immutable struct {
	*inSpace
	// recorded, if set, translates a status that the stage1 has recorded.
	recorded func(abi.Status) abi.Status

	mu  sync.Mutex
	run *launched
	app *onlyApp
}

var _ pod.Stage1 = (*Immutable)(nil)

// OpenImmutable is the door for images of interface version 7 whose pods have one app.
func OpenImmutable(i *image.Image, name string, children *proc.Children, excused []string) pod.Stage1 {
	if i.Rkts() || i.Mutable() {
		return nil
	}
	s := New(i, name, children)
	s.Excuse(excused)
	return &Immutable{inSpace: newInSpace(s)}
}

// onlyApp is the app of such a pod.
type onlyApp struct {
	call  pod.Call
	ended chan abi.Status // takes one
}

// Has tells whether stage 0 can have something done by an entrypoint.
func (s *Immutable) Has(e abi.Entrypoint) bool {
	switch e {
	case abi.AppAdd, abi.AppStart, abi.AppStop, abi.AppRm, abi.Attach:
		return false
	}
	return s.Stage1.Has(e)
}

// Run starts the launcher. A pod that is to live without apps cannot be had.
func (s *Immutable) Run(_ context.Context, c pod.Call, lock *os.File) (*pod.Supervisor, error) {
	if c.Request.Sandbox != nil {
		return nil, s.refused("a pod of it is one container: it cannot be a sandbox for others", errdefs.ErrNotImplemented)
	}
	p, sup, err := s.launch(c, lock, s.over)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.run = p
	s.mu.Unlock()
	return sup, nil
}

// over delivers the app's exit.
func (s *Immutable) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.app != nil {
		s.app.ended <- s.exit(s.run, s.app)
	}
}

// exit tells how the app has ended. The status of `run` is the app's if `run` has
// become the app; else what was recorded counts, if anything was.
func (s *Immutable) exit(p *launched, a *onlyApp) abi.Status {
	k := p.call
	leader, err := readPID(k.Dir + "/" + pidFile)
	became := err == nil && leader == k.child.PID()
	if p.started.Load() && !became {
		st, err := abi.ReadStatus(StatusDir(k.Dir), a.call.Request.App, "")
		if err == nil && s.recorded != nil {
			st = s.recorded(st)
		}
		if err == nil {
			return st
		}
	}
	return k.exit
}

// running returns the pod's process and its app; both may be nil.
func (s *Immutable) running() (*launched, *onlyApp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run, s.app
}

// Add prepares the pod's only app. Its process is the launcher.
func (s *Immutable) Add(ctx context.Context, c pod.Call, stdio [3]*os.File) (_ *pod.Process, err error) {
	c.Request.Entrypoint = abi.AppAdd
	s.mu.Lock()
	p := s.run
	if p == nil || s.app != nil {
		s.mu.Unlock()
		return nil, s.refused("it is immutable: a pod of it has one container, and this one has it already", errdefs.ErrFailedPrecondition)
	}
	s.app = &onlyApp{call: c, ended: make(chan abi.Status, 1)}
	ended := s.app.ended
	s.mu.Unlock()

	k, err := s.compose(c, false)
	if err != nil {
		return nil, s.refused(err.Error(), err)
	}
	if err := checkProgram(c.Request.Rootfs, k.spec.Process); err != nil {
		return nil, s.refused(err.Error(), err)
	}
	if err := withManifest(c.Dir, k.write); err != nil {
		return nil, fmt.Errorf("app %s: %w", k.name, err)
	}
	if err := s.mountRoot(c.Request.Rootfs, k); err != nil {
		return nil, fmt.Errorf("app %s: %w", k.name, err)
	}
	if err := s.mountVolumes(k, c.Request.Bundle); err != nil {
		return nil, fmt.Errorf("app %s: %w", k.name, err)
	}
	streams, err := openStreams(stdio, c.Request.Terminal, k.spec.Process)
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", k.name, err)
	}
	defer streams.close()
	p.call.interactive = c.Request.Terminal || stdio[0] != nil
	limit, cancel := context.WithTimeout(ctx, s.limit(abi.AppAdd))
	defer cancel()
	err = p.control.Join(limit, launch.Join{Cgroups: c.Request.Cgroup.Dirs, Network: network(k.spec.Linux), Terminal: c.Request.Terminal}, streams.files)
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", k.name, err)
	}
	return &pod.Process{
		PID: p.call.child.PID(), StartTime: p.pidfd.StartTime(), Recorder: pod.RecordedByCall,
		Console: streams.take(), Ended: ended,
	}, nil
}

// Invoke executes an entrypoint, or what takes its place.
func (s *Immutable) Invoke(ctx context.Context, c pod.Call) error {
	p, a := s.running()
	switch e := c.Request.Entrypoint; {
	case e == abi.AppStart && a != nil:
		return s.start(ctx, p, a, func(ctx context.Context) error {
			_, err := p.call.awaitReady(ctx)
			return err
		})
	case e == abi.Stop && p != nil && !p.runs():
		// Nothing is there that could be stopped, and what `pid` names may be
		// somebody else's by now.
		return p.signal(syscall.SIGKILL)
	}
	return s.invoke(c, func() error { return s.Stage1.Invoke(ctx, c) })
}

// start has the launcher execute `run`, and waits until ready returns.
func (s *Immutable) start(ctx context.Context, p *launched, a *onlyApp, ready func(context.Context) error) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	k := p.call
	k.Call = a.call
	k.Request.Entrypoint, k.Request.Version = abi.Run, abi.Version
	k.began = time.Now()
	k.args = s.dialect.arguments(k)
	err := markStarted(k.Dir, k.Request.App)
	if err == nil {
		err = p.execute(ctx, ready)
	}
	if err != nil {
		return p.failed(err)
	}
	k.journal(stateReady)
	p.settle()
	return nil
}

// Enter executes `enter`.
func (s *Immutable) Enter(ctx context.Context, c pod.Call, args []string, stdio [3]*os.File) (*pod.Process, error) {
	c.Leader = s.leader(c)
	return s.Stage1.Enter(ctx, c, args, stdio)
}

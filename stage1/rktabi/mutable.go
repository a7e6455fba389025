package rktabi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// mutable calls the entrypoints of an image of rkt's whose pods get apps while they
// run. `run` is executed when it is known what network the pod is in: the first app's
// spec says so, or the request for a sandbox.
//
//	Run ──► first Add: execve of `run`, until supervisor-status says ready
//	        each Add:  manifests, mounts, app/add ──► app/start ──► app/stop, app/rm
//
// The process of an app is made by app/start, below a supervisor that is none of stage
// 0's children. It is looked for then, put into the app's cgroup, and signalled by its
// pid.
type mutable struct {
	adapter

	mu   sync.Mutex
	run  *immutable.Launched
	apps map[string]*mutableApp

	booting sync.Mutex // held while `run` becomes ready
	booted  error      // of the start of `run`; guarded by booting
}

var _ pod.Stage1 = (*mutable)(nil)

// Has reports whether stage 0 can have something done: an entrypoint of rkt's, or the
// delivery of signals, which is stage 0's.
func (s *mutable) Has(e abi.Entrypoint) bool {
	switch e {
	case abi.AppSignal:
		return true
	case abi.AppPause, abi.AppResume, abi.AppUpdate, abi.AppStats, abi.AppCheckpoint:
		return false
	}
	return s.Stage1.Has(e)
}

// Run starts the process that becomes `run`, and for a pod that is to live without
// apps makes it that at once.
func (s *mutable) Run(ctx context.Context, c pod.Call, lock *os.File) (*pod.Supervisor, error) {
	p, sup, err := s.Launch(c, lock, s.over)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.run, s.apps = p, map[string]*mutableApp{}
	s.mu.Unlock()
	if c.Request.Sandbox == nil {
		return sup, nil
	}
	if err = s.boot(ctx, c.Request.Spec); err == nil {
		sup.Leader, err = s.ready(c)
	}
	if err == nil {
		err = s.fits(immutable.SpecOf(&c.Request), sup.Leader.PID)
	}
	if err != nil {
		err = errors.Join(err, sup.Kill(), sup.Notices.Close())
		<-sup.Done
		return nil, err
	}
	return sup, nil
}

// ready returns the process that `enter` is given. That ppid names a process with one
// child is what an image has promised.
func (s *mutable) ready(c pod.Call) (abi.Ready, error) {
	pid := s.Leader(c)
	if parent, err := immutable.ReadPID(filepath.Join(c.Dir, immutable.PpidFile)); err == nil && parent == pid {
		return abi.Ready{}, s.Refused(fmt.Sprintf("process %d, which ppid names, has %d children in place of one", pid, len(immutable.ChildrenOf(pid))), errdefs.ErrFailedPrecondition)
	}
	start, err := proc.StartTime(pid)
	if err != nil {
		return abi.Ready{}, s.Refused(fmt.Sprintf("the pod's first process %d has gone", pid), err)
	}
	return abi.Ready{PID: pid, StartTime: start}, nil
}

// boot executes `run` for the first app, and waits until the pod's supervisor says
// that it is ready. Others wait meanwhile, and get the same answer. Then what the
// spec asks of the pod is checked or done.
func (s *mutable) boot(ctx context.Context, raw abi.RawJSON) error {
	s.booting.Lock()
	defer s.booting.Unlock()
	s.mu.Lock()
	p := s.run
	s.mu.Unlock()
	if p == nil {
		return s.Refused("the pod does not run", errdefs.ErrFailedPrecondition)
	}
	if p.Started.Load() || s.booted != nil {
		return s.booted
	}
	p.Starting.Lock()
	defer p.Starting.Unlock()
	k := p.Call
	k.Began = time.Now()
	k.Request.Spec = raw
	k.Args = s.Dialect.Arguments(k)
	if err := s.becomeReady(ctx, p, immutable.SpecOf(&k.Request)); err != nil {
		s.booted = p.Failed(err)
		return s.booted
	}
	k.Journal(stage1.StateReady)
	p.Settle()
	return nil
}

func (s *mutable) becomeReady(ctx context.Context, p *immutable.Launched, spec *specs.Spec) error {
	k := p.Call
	limit, cancel := k.Limit(ctx)
	defer cancel()
	if err := p.Control.Join(limit, launch.Join{Network: immutable.Network(spec.Linux)}, [3]*os.File{}); err != nil {
		return err
	}
	// `run` loads all apps of the manifest, too, and there is none yet.
	if err := disk.LockManifest(k.Dir, (&immutable.Composition{Dir: k.Dir}).Delist); err != nil {
		return err
	}
	r := &readiness{dir: k.Dir, rkt: filepath.Join(k.Dir, stage1.RktDir)}
	files, err := watchDirs(r.rkt, k.Dir)
	if err != nil {
		return err
	}
	defer files.close()
	return p.Execute(ctx, func(ctx context.Context) error {
		return files.await(ctx, k, func() (bool, error) { return r.there(files) })
	})
}

// readyLink is made by a pod's supervisor once it is ready: a link to "ready".
const readyLink = "supervisor-status"

// readiness looks for what a supervisor leaves when it is ready.
type readiness struct {
	dir, rkt string
	other    bool // the link was seen, and said something else
}

// there reports whether the pod is ready: the link says so, and whose pid `enter` gets is
// known. Before that the only child of a systemd-nspawn is one that goes away. A newer
// systemd than rkt's removes the link at once, so to have seen it made is enough.
func (r *readiness) there(files *watch) (bool, error) {
	to, err := os.Readlink(filepath.Join(r.rkt, readyLink))
	switch {
	case err == nil:
		r.other = to != "ready"
	case errors.Is(err, fs.ErrNotExist) && files.saw(readyLink) && !r.other:
		to = "ready"
	default:
		return false, err
	}
	return to == "ready" && immutable.SupervisorOf(r.dir) != 0, nil
}

// over ends the apps of a pod that has ended, unless somebody waits for their exits.
func (s *mutable) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.apps {
		if !a.started.Load() {
			a.end(killedStatus())
		}
	}
}

// killedStatus is the end of what nobody has recorded.
func killedStatus() abi.Status {
	return abi.Status(proc.Killed())
}

// app returns an app of this process's, or nil.
func (s *mutable) app(c pod.Call) *mutableApp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps[c.Request.App]
}

// Enter executes `enter` in an app.
func (s *mutable) Enter(ctx context.Context, c pod.Call, args []string, stdio [3]*os.File) (*pod.Process, error) {
	a := s.app(c)
	if a == nil {
		return nil, s.Refused("no such app", errdefs.ErrNotFound)
	}
	c.Leader = s.Leader(c)
	return s.enter(ctx, c, args, stdio, a.made.Spec)
}

// Invoke executes an entrypoint, or what takes its place.
func (s *mutable) Invoke(ctx context.Context, c pod.Call) error {
	s.mu.Lock()
	p := s.run
	s.mu.Unlock()
	a := s.app(c)
	c.Leader = s.Leader(c)
	switch e := c.Request.Entrypoint; {
	case e == abi.AppSignal:
		return s.signal(ctx, a, c)
	case e == abi.Stop && p != nil && !p.Runs():
		// Nothing is there that could be stopped.
		return p.Signal(syscall.SIGKILL)
	case e == abi.AppStart && a != nil:
		return s.start(ctx, a, c)
	case e == abi.AppStop:
		return s.kill(ctx, a)
	case e == abi.AppRm:
		return s.remove(ctx, a, c)
	}
	return s.Reach(c, func() error { return s.Stage1.Invoke(ctx, c) })
}

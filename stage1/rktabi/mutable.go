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
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// mutable calls the entrypoints of an rkt image whose pods get apps while they run. `run`
// is executed when the pod's network is known, from the first app's spec or from the
// request for a sandbox.
//
//	Run ──► first Add: execve of `run`, until supervisor-status says ready
//	        each Add:  manifests, mounts, app/add ──► app/start ──► app/stop, app/rm
//
// app/start makes the process of an app below a supervisor that is no child of stage 0. So
// stage 0 then finds the process, moves it into the app's cgroup, and signals it by its
// pid.
type mutable struct {
	*adapter

	mu   sync.Mutex
	run  *immutable.Launched
	apps map[string]*mutableApp

	booting sync.Mutex // held while `run` becomes ready
	booted  error      // error of the start of `run`; guarded by booting
}

var _ pod.Stage1 = (*mutable)(nil)

// Has reports whether an entrypoint can be called. app/signal always can, because stage 0
// itself delivers signals.
func (s *mutable) Has(e abi.Entrypoint) bool {
	switch e {
	case abi.AppSignal:
		return true
	case abi.AppPause, abi.AppResume, abi.AppUpdate, abi.AppStats, abi.AppCheckpoint:
		return false
	}
	return s.Stage1.Has(e)
}

// Run starts the process that becomes `run`. In a sandbox, which exists without apps, the process
// executes `run` at once.
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
	if err = s.boot(ctx, c.Spec); err == nil {
		sup.Leader, err = s.ready(c)
	}
	if err == nil {
		err = s.fits(immutable.SpecOf(&c), sup.Leader.PID)
	}
	if err != nil {
		err = errors.Join(err, sup.Kill(), sup.Notices.Close())
		<-sup.Done
		return nil, err
	}
	return sup, nil
}

// ready returns the process that `enter` gets. If the image has written ppid, the process
// in ppid must have exactly one child.
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

// boot executes `run` for the first app, and waits until the pod's supervisor is ready. Concurrent
// and later calls return the same result.
func (s *mutable) boot(ctx context.Context, app *spec.App) error {
	s.booting.Lock()
	defer s.booting.Unlock()
	p := s.launched()
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
	k.Trace(ctx)
	k.Spec = app
	k.Args = s.Dialect.Arguments(k)
	if err := s.becomeReady(ctx, p, immutable.SpecOf(&k.Call)); err != nil {
		s.booted = p.Failed(err)
		return s.booted
	}
	k.Journal(journal.Ready)
	p.Settle()
	return nil
}

func (s *mutable) becomeReady(ctx context.Context, p *immutable.Launched, spec *specs.Spec) error {
	k := p.Call
	limit, cancel := k.Limit(ctx)
	defer cancel()
	if err := p.Control.Join(limit, launch.Join{Network: immutable.Network(spec)}, [3]*os.File{}); err != nil {
		return err
	}
	// `run` would load the apps in the manifest, which have no files yet.
	if err := disk.LockManifest(k.Dir, (&immutable.Composition{Dir: k.Dir}).Delist); err != nil {
		return err
	}
	r := &readiness{dir: k.Dir}
	files, err := watchDirs(k.Dir, stage1.RktDir, ".")
	if err != nil {
		return err
	}
	defer files.close()
	return p.Execute(ctx, func(ctx context.Context) error {
		return files.await(ctx, k, func() (bool, error) { return r.there(files) })
	})
}

// readyLink is a link to "ready" that a pod's supervisor makes when it is ready.
const readyLink = "supervisor-status"

// readiness looks for the files by which a supervisor reports that it is ready.
type readiness struct {
	dir   string // of the pod
	other bool   // the link had another target when it was last read
}

// there reports whether the pod is ready: the link exists, and the pid for `enter` is
// known. Before that, the only child of a systemd-nspawn is a temporary process. A systemd
// newer than rkt's removes the link at once, so an event of the link is enough.
func (r *readiness) there(files *watch) (bool, error) {
	rkt, err := abi.OpenBelow(r.dir, stage1.RktDir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return false, err
	}
	defer rkt.Close()
	to, err := os.Readlink(filepath.Join(procFD(rkt.Fd()), readyLink))
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

// over ends the apps that were not started, when the pod ends. start waits for the ends of
// the other apps.
func (s *mutable) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.apps {
		if !a.started.Load() {
			a.end(abi.Status(proc.Killed()))
		}
	}
}

// launched returns the process of `run`, which may still be the launcher, or nil before
// Run.
func (s *mutable) launched() *immutable.Launched {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// app returns the app of a call if this process has added it, otherwise nil.
func (s *mutable) app(c pod.Call) *mutableApp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apps[c.Request.App]
}

// Enter executes `enter` in an app.
func (s *mutable) Enter(ctx context.Context, c pod.Call, stdio [3]*os.File) (*pod.Process, error) {
	a := s.app(c)
	if a == nil {
		return nil, s.Refused("no such app", errdefs.ErrNotFound)
	}
	c.Leader = s.Leader(c)
	return s.enter(ctx, c, stdio, a.made.Spec)
}

// Invoke executes an entrypoint, or does its work in stage 0.
func (s *mutable) Invoke(ctx context.Context, c pod.Call) error {
	p, a := s.launched(), s.app(c)
	c.Leader = s.Leader(c)
	switch e := c.Request.Entrypoint; {
	case e == abi.AppSignal:
		return s.signal(ctx, a, c)
	case e == abi.Stop && p != nil && !p.Runs(): // `run` was not executed yet, or has ended
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

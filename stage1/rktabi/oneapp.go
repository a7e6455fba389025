package rktabi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// oneApp calls the entrypoints of an image of interface version 1 to 6 whose pods have one
// app each. Stage 0 itself delivers signals. `run` is ready when it has written pid or
// ppid.
type oneApp struct {
	*immutable.OneApp
	rkt  *adapter
	told atomic.Int32 // the last signal that stage 0 has sent to the app
}

var _ pod.Stage1 = (*oneApp)(nil)

// Open opens images of the rkt ABI. It is a stage1.Door.
func Open(i *image.Image, name string, children *proc.Children, rules stage1.Rules) pod.Stage1 {
	if !i.RktABI() {
		return nil
	}
	s := stage1.NewOf(i, name, children, dialect{})
	s.Abide(rules)
	r := &adapter{InSpace: immutable.NewInSpace(s)}
	s.ProgramDir, r.Show, r.Guard = stage1.ImageDir, r.makeVisible, r.guardTree
	if i.Mutable() {
		return &mutable{adapter: r}
	}
	m := &oneApp{OneApp: &immutable.OneApp{InSpace: r.InSpace}, rkt: r}
	m.Recorded = func(st abi.Status) abi.Status { return fromRkt(st, int(m.told.Load())) }
	return m
}

// Has reports whether an entrypoint can be called. app/signal always can, because stage 0
// itself delivers signals.
func (s *oneApp) Has(e abi.Entrypoint) bool {
	switch e {
	case abi.Run, abi.Enter, abi.GC, abi.Stop:
		return s.Stage1.Has(e)
	}
	return e == abi.AppSignal
}

// Invoke executes an entrypoint, or does its work in stage 0.
func (s *oneApp) Invoke(ctx context.Context, c pod.Call) error {
	p, a := s.Running()
	switch e := c.Request.Entrypoint; {
	case e == abi.AppStart && a != nil:
		return s.start(ctx, p, a)
	case e == abi.AppSignal:
		return s.signal(p, a, c)
	}
	return s.OneApp.Invoke(ctx, c)
}

// Detach undoes Attach, and removes the pod's cgroups: see adapter.Detach.
func (s *oneApp) Detach(dir string) error { return s.rkt.Detach(dir) }

// Exit codes of rkt's programs: for a failure, and for unknown arguments.
const (
	unfit   = 254
	misused = 2
)

// start makes the launcher execute `run`, and waits until `run` is ready.
func (s *oneApp) start(ctx context.Context, p *immutable.Launched, a *immutable.App) error {
	k := p.Call
	files, err := watchDirs(k.Dir, ".")
	if err != nil {
		p.Starting.Lock()
		defer p.Starting.Unlock()
		return p.Failed(err)
	}
	defer files.close()
	return s.OneApp.StartApp(ctx, p, a, func(ctx context.Context) error {
		err := files.await(ctx, k, func() (bool, error) { return immutable.SupervisorOf(k.Dir) != 0, nil })
		switch {
		case !errors.Is(err, stage1.ErrEnded):
			return err
		case k.Exit.Code != unfit && k.Exit.Code != misused:
			return nil // the app has ended before `run` reported ready
		}
		return fmt.Errorf("it ended with code %d before it wrote pid or ppid; %w", k.Exit.Code, immutable.ErrMute)
	})
}

// Enter executes `enter`.
func (s *oneApp) Enter(ctx context.Context, c pod.Call, stdio [3]*os.File) (*pod.Process, error) {
	_, a := s.Running()
	if a == nil {
		return nil, s.Refused("no such app", errdefs.ErrNotFound)
	}
	c.Leader = s.Leader(c)
	return s.rkt.enter(ctx, c, stdio, immutable.SpecOf(&a.Call))
}

// signal sends a signal to a process of an app by its host pid.
func (s *oneApp) signal(p *immutable.Launched, a *immutable.App, c pod.Call) error {
	sig := syscall.Signal(c.Request.Signal)
	if c.Request.Exec != "" {
		return s.rkt.signalExec(c)
	}
	if a == nil {
		return s.Refused("no such app", errdefs.ErrNotFound)
	}
	select {
	case <-p.Call.Ended:
		return s.Refused("process already finished", errdefs.ErrNotFound)
	default:
	}
	if !p.Started.Load() { // before app/start the process is the launcher, which a fatal signal ends
		if proc.Fatal(sig) {
			sig = unix.SIGKILL
		}
		return p.Signal(sig)
	}
	s.told.Store(int32(sig))
	pid := s.rkt.mainPID(c)
	if pid == p.Call.Child.PID() {
		return p.Signal(sig)
	}
	return signalPID(pid, sig)
}

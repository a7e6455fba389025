package stage1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Stage1 calls the entrypoints of an image. It implements pod.Stage1.
type Stage1 struct {
	*Image
	name     string
	children *proc.Children
}

var _ pod.Stage1 = (*Stage1)(nil)

// New returns the stage1 that people call name.
func New(image *Image, name string, children *proc.Children) *Stage1 {
	return &Stage1{Image: image, name: name, children: children}
}

// Name returns what people call the stage1.
func (s *Stage1) Name() string { return s.name }

// deadline is how long a call may take: docs/stage1-abi.md, section 2.
func deadline(e abi.Entrypoint) time.Duration {
	switch e {
	case abi.AppAdd, abi.AppStart:
		return 60 * time.Second
	case abi.Run, abi.Enter:
		return 30 * time.Second
	}
	return 10 * time.Second
}

// Run executes `run` and returns once the supervisor is ready.
func (s *Stage1) Run(ctx context.Context, c pod.Call, lock *os.File) (*pod.Supervisor, error) {
	k, err := s.newCall(c, abi.Run)
	if err != nil {
		return nil, err
	}
	k.lock = lock
	if err := k.start(); err != nil {
		return nil, k.fail(err)
	}
	ready, err := k.awaitReady(ctx)
	if err != nil {
		return nil, k.fail(err)
	}
	p, err := proc.Open(k.child.PID(), 0)
	if err != nil {
		return nil, k.fail(err)
	}
	signal := func(sig syscall.Signal) error {
		if err := p.Signal(sig); !errors.Is(err, proc.ErrGone) {
			return err
		}
		return nil
	}
	done := make(chan struct{})
	go func() {
		<-k.child.Done()
		_ = p.Close()
		close(done)
	}()
	sup := &pod.Supervisor{
		PID: k.child.PID(), Leader: ready, Notices: k.takeNotices(), Done: done,
		Signal: signal, Kill: func() error { return signal(syscall.SIGKILL) },
	}
	k.finish(nil)
	return sup, nil
}

// Add executes `app/add`.
func (s *Stage1) Add(ctx context.Context, c pod.Call, stdio [3]*os.File) (*pod.Process, error) {
	k, err := s.newCall(c, abi.AppAdd)
	if err != nil {
		return nil, err
	}
	k.stdio = stdio
	ready, err := k.create(ctx)
	if err == nil {
		err = k.awaitEnd(ctx)
	}
	if err != nil {
		return nil, k.fail(err)
	}
	p := &pod.Process{PID: ready.PID, StartTime: ready.StartTime, Console: k.takeConsole(), Recorder: pod.RecordedByStage1}
	if parent, err := proc.Parent(ready.PID); err == nil && parent == os.Getpid() {
		p.Recorder = pod.RecordedByStage0
	}
	k.finish(nil)
	return p, nil
}

// Enter executes `enter`.
func (s *Stage1) Enter(ctx context.Context, c pod.Call, args []string, stdio [3]*os.File) (*pod.Process, error) {
	k, err := s.newCall(c, abi.Enter)
	if err != nil {
		return nil, err
	}
	k.stdio = stdio
	k.args = append(k.args, args...)
	ready, err := k.create(ctx)
	if err != nil {
		return nil, k.fail(err)
	}
	p := &pod.Process{PID: ready.PID, StartTime: ready.StartTime, Console: k.takeConsole()}
	p.Recorder = k.recorder(ready.PID)
	if p.Recorder == pod.RecordedByCall {
		ended := make(chan abi.Status, 1)
		p.Ended = ended
		go func() { ended <- k.child.Wait() }()
	}
	go func() {
		<-k.child.Done()
		k.finish(nil)
	}()
	return p, nil
}

// Invoke executes any other entrypoint.
func (s *Stage1) Invoke(ctx context.Context, c pod.Call) error {
	k, err := s.newCall(c, c.Request.Entrypoint)
	if err != nil {
		return err
	}
	if err := k.start(); err != nil {
		return k.fail(err)
	}
	if err := k.awaitEnd(ctx); err != nil {
		return k.fail(err)
	}
	k.finish(nil)
	return nil
}

// errMissing is the answer to a call of an entrypoint that is not declared.
func (s *Stage1) errMissing(e abi.Entrypoint) error {
	return &EntrypointError{Stage1: s.name, Entrypoint: e, Code: abi.ExitNotImplemented,
		Reason: fmt.Sprintf("the image declares no such entrypoint (annotation %s%s)", abi.AnnotationPrefix, e)}
}

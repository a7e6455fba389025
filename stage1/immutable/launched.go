package immutable

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// Launched is the process of a pod's `run`. As with rkt's stage 0, it starts as a launcher
// that holds the lock until the arguments of `run` are known, and then executes `run`.
type Launched struct {
	Call    *stage1.Call
	Control *launch.Control
	pidfd   *proc.Process
	Settle  func() // ends stage 0's part of the call

	Starting sync.Mutex // held until `run` is ready; its process is not reaped before
	Started  atomic.Bool
}

// Launch starts the launcher of a pod. over is called when the process has ended, as
// launcher or as `run`.
func (s *InSpace) Launch(c pod.Call, lock *os.File, over func()) (*Launched, *pod.Supervisor, error) {
	k, err := s.NewCall(c, abi.Run)
	if err != nil {
		return nil, nil, err
	}
	k.Lock = lock
	p := &Launched{Call: k, Settle: sync.OnceFunc(k.Release)}
	if p.Control, err = launch.NewControl(); err != nil {
		return nil, nil, err
	}
	if err := StartLauncher(k, p.Control); err != nil {
		p.Control.Close()
		return nil, nil, k.Fail(err)
	}
	sup, err := p.supervise(over)
	if err == nil {
		err = s.guard(c.Dir)
	}
	if err != nil {
		p.Control.Close()
		return nil, nil, k.Fail(err)
	}
	return p, sup, nil
}

// StartLauncher starts the process that becomes the entrypoint.
func StartLauncher(k *stage1.Call, control *launch.Control) error {
	defer control.Started()
	return k.Execute(launch.Argv(), []string{"PATH=" + stage1.SearchPath()}, &syscall.SysProcAttr{Setsid: true}, control.File())
}

// supervise returns the process as a pod.Supervisor.
func (p *Launched) supervise(over func()) (*pod.Supervisor, error) {
	k := p.Call
	var err error
	if p.pidfd, err = proc.Open(k.Child.PID(), 0); err != nil { // the process is not reaped yet, so its pid is valid
		return nil, err
	}
	notices, end, err := os.Pipe() // carries no notices, and is closed at the end
	if err != nil {
		return nil, errors.Join(err, p.pidfd.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-k.Ended
		over()
		p.Starting.Lock()
		p.Settle()
		p.Starting.Unlock()
		k.Leave()
		p.Control.Close()
		_ = end.Close()
		_ = p.pidfd.Close()
	}()
	return &pod.Supervisor{
		PID: k.Child.PID(), Leader: abi.Ready{PID: k.Child.PID(), StartTime: p.pidfd.StartTime()}, Notices: notices, Done: done,
		Signal: p.Signal, Kill: func() error { return p.Signal(syscall.SIGKILL) },
	}, nil
}

// Execute makes the launcher execute `run`, and waits until ready returns.
func (p *Launched) Execute(ctx context.Context, ready func(context.Context) error) error {
	k := p.Call
	env, err := k.Stage1.Dialect.Environment(k)
	if err != nil {
		return err
	}
	limit, cancel := k.Limit(ctx)
	defer cancel()
	p.Started.Store(true)
	path := k.Stage1.EntrypointIn(k.Dir, abi.Run)
	if err := p.Control.Exec(limit, launch.Exec{Argv: append([]string{path}, k.Args...), Env: env}); err != nil {
		if errors.As(err, new(syscall.Errno)) {
			err = stage1.ExplainExec(path, err)
		}
		return err
	}
	return ready(limit)
}

// Runs reports whether `run` was executed and has not ended.
func (p *Launched) Runs() bool {
	select {
	case <-p.Call.Ended:
		return false
	default:
		return p.Started.Load()
	}
}

// Signal signals the process, whether it is the launcher or `run`. It is not an error if the
// process has ended.
func (p *Launched) Signal(sig syscall.Signal) error {
	if err := p.pidfd.Signal(sig); err != nil && p.pidfd.Alive() {
		return err
	}
	return nil
}

// Failed kills a `run` that did not become ready, and returns an error that describes err.
func (p *Launched) Failed(err error) error {
	k := p.Call
	e := &stage1.EntrypointError{Stage1: k.Stage1.Name(), Pod: k.Request.Pod, Entrypoint: abi.Run, Code: -1}
	k.Kill()
	switch {
	case errors.Is(err, ErrMute):
		e.Describe(k.Exit, "")
		e.Text = err.Error()
	case errors.Is(err, stage1.ErrEnded):
		e.Describe(k.Exit, k.Said())
	default:
		e.Text, e.Err = err.Error(), err
	}
	e.Duration = time.Since(k.Began)
	return e
}

// ErrMute is stage1.ErrEnded for a `run` whose stderr is the app's, so that stage 0 does
// not have its message.
var ErrMute = errors.New("what it had to say is in the container's output")

// Network returns the network namespace that a spec asks for: its path, launch.NewNamespace, or
// "" for the host's.
func Network(s *specs.Spec) string {
	path, asked := spec.Namespace(s, specs.NetworkNamespace)
	if asked && path == "" {
		return launch.NewNamespace
	}
	return path
}

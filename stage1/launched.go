package stage1

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/launch"
)

// launched is the process of a pod's `run`, from its beginning: a launcher keeps the
// lock until it is known what `run` is to be told, and then becomes `run`, as rkt's
// stage 0 did.
type launched struct {
	call    *call
	control *launch.Control
	pidfd   *proc.Process
	settle  func() // ends stage 0's part in the call

	starting sync.Mutex // held while `run` becomes ready: its process is not reaped then
	started  atomic.Bool
}

// launch starts the launcher of a pod. over is called when that, or what it has
// become, has ended.
func (s *inSpace) launch(c pod.Call, lock *os.File, over func()) (*launched, *pod.Supervisor, error) {
	k, err := s.newCall(c, abi.Run)
	if err != nil {
		return nil, nil, err
	}
	k.lock = lock
	p := &launched{call: k, settle: sync.OnceFunc(k.release)}
	if p.control, err = launch.NewControl(); err != nil {
		return nil, nil, err
	}
	if err := startLauncher(k, p.control); err != nil {
		p.control.Close()
		return nil, nil, k.fail(err)
	}
	sup, err := p.supervise(over)
	if err != nil {
		p.control.Close()
		return nil, nil, k.fail(err)
	}
	return p, sup, nil
}

// startLauncher starts the process that is to become the entrypoint.
func startLauncher(k *call, control *launch.Control) error {
	defer control.Started()
	return k.execute(launch.Argv(), []string{"PATH=" + searchPath()}, &syscall.SysProcAttr{Setsid: true}, control.File())
}

// supervise returns the process as the pod is to know it.
func (p *launched) supervise(over func()) (*pod.Supervisor, error) {
	k := p.call
	var err error
	if p.pidfd, err = proc.Open(k.child.PID(), 0); err != nil { // not reaped before release
		return nil, err
	}
	notices, end, err := os.Pipe() // that nothing is written to: there is only the end
	if err != nil {
		return nil, errors.Join(err, p.pidfd.Close())
	}
	done := make(chan struct{})
	signal := func(sig syscall.Signal) error {
		err := p.pidfd.Signal(sig)
		select {
		case <-k.ended: // it may be closed by now
			return nil
		default:
			return err
		}
	}
	go func() {
		defer close(done)
		<-k.ended
		over()
		p.starting.Lock()
		p.settle()
		p.starting.Unlock()
		k.leave()
		p.control.Close()
		_ = end.Close()
		_ = p.pidfd.Close()
	}()
	return &pod.Supervisor{
		PID: k.child.PID(), Leader: abi.Ready{PID: k.child.PID(), StartTime: p.pidfd.StartTime()}, Notices: notices, Done: done,
		Signal: signal, Kill: func() error { return signal(syscall.SIGKILL) },
	}, nil
}

// execute makes the launcher `run`, and waits until ready returns.
func (p *launched) execute(ctx context.Context, ready func(context.Context) error) error {
	k := p.call
	env, err := k.stage1.dialect.environment(k)
	if err != nil {
		return err
	}
	limit, cancel := k.limit(ctx)
	defer cancel()
	p.started.Store(true)
	path := k.stage1.entrypoint(k.Dir, abi.Run)
	if err := p.control.Exec(limit, launch.Exec{Argv: append([]string{path}, k.args...), Env: env}); err != nil {
		if errors.As(err, new(syscall.Errno)) {
			err = explainExec(path, err)
		}
		return err
	}
	return ready(limit)
}

// runs tells whether `run` was executed and has not ended.
func (p *launched) runs() bool {
	select {
	case <-p.call.ended:
		return false
	default:
		return p.started.Load()
	}
}

// signal signals the process, whatever it is by now.
func (p *launched) signal(sig syscall.Signal) error {
	if err := p.pidfd.Signal(sig); err != nil && p.pidfd.Alive() {
		return err
	}
	return nil
}

// failed ends the process of a `run` that did not become ready, and describes that.
func (p *launched) failed(err error) error {
	k := p.call
	e := &EntrypointError{Stage1: k.stage1.Name(), Entrypoint: abi.Run, Code: -1}
	k.kill()
	switch {
	case errors.Is(err, errMute):
		e.describe(k.exit, "")
		e.Text = err.Error()
	case errors.Is(err, errEnded):
		e.describe(k.exit, k.words.stop())
	default:
		e.Text, e.Err = err.Error(), err
	}
	e.Duration = time.Since(k.began)
	return e
}

// errMute is errEnded of a `run` that has written to the app's streams alone.
var errMute = errors.New("what it had to say is in the container's output")

// network returns the network namespace that a spec asks for: its path, or
// launch.NewNamespace, or nothing for the host's.
func network(linux *specs.Linux) string {
	if linux == nil {
		return ""
	}
	for _, ns := range linux.Namespaces {
		if ns.Type == specs.NetworkNamespace {
			if ns.Path == "" {
				return launch.NewNamespace
			}
			return ns.Path
		}
	}
	return ""
}

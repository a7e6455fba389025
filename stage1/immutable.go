package stage1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
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
	private

	mu  sync.Mutex
	run *onlyProcess
}

var _ pod.Stage1 = (*Immutable)(nil)

// onlyProcess is the launcher, and later `run`.
type onlyProcess struct {
	call    *call
	control *launch.Control
	pidfd   *proc.Process
	settle  func() // ends stage 0's part in the call

	// Guarded by Immutable.mu.
	app   *pod.Call // of app/add
	ended chan abi.Status

	starting sync.Mutex // held while `run` becomes ready: its process is not reaped then
	started  atomic.Bool
	told     atomic.Int32 // the last signal that stage 0 has sent to the app
}

// Has tells whether stage 0 can have something done: an entrypoint, or for rkt's
// versions the delivery of signals, which is stage 0's.
func (s *Immutable) Has(e abi.Entrypoint) bool {
	switch e {
	case abi.AppAdd, abi.AppStart, abi.AppStop, abi.AppRm, abi.Attach:
		return false
	case abi.Run, abi.Enter, abi.GC, abi.Stop:
		return s.Stage1.Has(e)
	}
	if s.manifest.rkts() {
		return e == abi.AppSignal
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

// launch starts the launcher of a pod. over is called when that, or what it has
// become, has ended.
func (s *private) launch(c pod.Call, lock *os.File, over func(*onlyProcess)) (*onlyProcess, *pod.Supervisor, error) {
	k, err := s.newCall(c, abi.Run)
	if err != nil {
		return nil, nil, err
	}
	k.lock = lock
	p := &onlyProcess{call: k, settle: sync.OnceFunc(k.release)}
	if p.control, err = launch.NewControl(); err != nil {
		return nil, nil, err
	}
	if err := k.startLauncher(p.control); err != nil {
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

// refused is an error that names the stage1.
func (s *Stage1) refused(why string, is error) error {
	return fmt.Errorf("stage1 %s: %s: %w", s.name, why, is)
}

// startLauncher starts the process that is to become the entrypoint.
func (k *call) startLauncher(control *launch.Control) error {
	var fds descriptors
	defer fds.close()
	if err := k.open(&fds); err != nil {
		return err
	}
	files := append(fds.table[:launch.ControlFD:launch.ControlFD], control.File())
	attr := &os.ProcAttr{Dir: k.Dir, Env: []string{"PATH=" + searchPath()}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	defer control.Started()
	return k.stage1.space.Load().do(func() (err error) {
		k.child, err = k.stage1.children.StartThen(launch.Argv(), attr, k.end)
		return err
	})
}

// supervise returns the process as the pod is to know it.
func (p *onlyProcess) supervise(over func(*onlyProcess)) (*pod.Supervisor, error) {
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
		over(p)
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

// over delivers the app's exit.
func (s *Immutable) over(p *onlyProcess) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.app != nil {
		p.ended <- s.exit(p)
	}
}

// exit tells how the app has ended. The status of `run` is the app's if `run` has
// become the app; else what was recorded counts, if anything was.
func (s *Immutable) exit(p *onlyProcess) abi.Status {
	k := p.call
	leader, err := readPID(k.Dir + "/" + pidFile)
	became := err == nil && leader == k.child.PID()
	if p.started.Load() && !became {
		st, err := abi.ReadStatus(StatusDir(k.Dir), p.app.Request.App, "")
		if err == nil && s.manifest.rkts() {
			st = fromRkt(st, int(p.told.Load()))
		}
		if err == nil {
			return st
		}
	}
	return k.exit
}

// Add prepares the pod's only app. Its process is the launcher.
func (s *Immutable) Add(ctx context.Context, c pod.Call, stdio [3]*os.File) (_ *pod.Process, err error) {
	c.Request.Entrypoint = abi.AppAdd
	s.mu.Lock()
	p := s.run
	if p == nil || p.app != nil {
		s.mu.Unlock()
		return nil, s.refused("it is immutable: a pod of it has one container, and this one has it already", errdefs.ErrFailedPrecondition)
	}
	p.app, p.ended = &c, make(chan abi.Status, 1)
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
	if err := s.mountRoot(c.Request.Rootfs, k.root()); err != nil {
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
	err = p.control.Join(limit, launch.Join{Cgroups: c.Request.Cgroup.Dirs, Network: network(k.spec), Terminal: c.Request.Terminal}, streams.files)
	if err != nil {
		return nil, fmt.Errorf("app %s: %w", k.name, err)
	}
	return &pod.Process{
		PID: p.call.child.PID(), StartTime: p.pidfd.StartTime(), Recorder: pod.RecordedByCall,
		Console: streams.take(), Ended: p.ended,
	}, nil
}

// network returns the network namespace that a spec asks for: its path, or
// launch.NewNamespace, or nothing for the host's.
func network(spec *specs.Spec) string {
	if spec.Linux == nil {
		return ""
	}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.NetworkNamespace {
			if ns.Path == "" {
				return launch.NewNamespace
			}
			return ns.Path
		}
	}
	return ""
}

// Invoke executes an entrypoint, or what takes its place.
func (s *Immutable) Invoke(ctx context.Context, c pod.Call) error {
	s.mu.Lock()
	p := s.run
	s.mu.Unlock()
	switch e := c.Request.Entrypoint; {
	case e == abi.AppStart && p != nil:
		return s.start(ctx, p)
	case e == abi.AppSignal && s.manifest.rkts():
		return s.signal(p, c)
	case e == abi.Stop && p != nil && !p.runs():
		// Nothing is there that could be stopped, and what `pid` names may be
		// somebody else's by now.
		return p.pidfdSignal(syscall.SIGKILL)
	}
	return s.invoke(c, func() error { return s.Stage1.Invoke(ctx, c) })
}

// runs tells whether `run` was executed and has not ended.
func (p *onlyProcess) runs() bool {
	select {
	case <-p.call.ended:
		return false
	default:
		return p.started.Load()
	}
}

func (p *onlyProcess) pidfdSignal(sig syscall.Signal) error {
	if err := p.pidfd.Signal(sig); err != nil && p.pidfd.Alive() {
		return err
	}
	return nil
}

// start has the launcher execute `run`, and waits until that says that it is ready.
func (s *Immutable) start(ctx context.Context, p *onlyProcess) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	k := p.call
	k.Call = *p.app
	k.Request.Entrypoint, k.Request.Version = abi.Run, abi.Version
	k.began = time.Now()
	k.args = k.arguments()
	if err := s.execute(ctx, p); err != nil {
		return p.failed(err)
	}
	k.journal(stateReady)
	p.settle()
	return nil
}

func (s *Immutable) execute(ctx context.Context, p *onlyProcess) error {
	k := p.call
	limit, cancel := k.limit(ctx)
	defer cancel()
	env, err := k.environment()
	if err != nil {
		return err
	}
	if err := markStarted(k.Dir, k.Request.App); err != nil {
		return err
	}
	var files *watch
	if k.rkts() {
		if files, err = watchDirs(k.Dir); err != nil {
			return err
		}
		defer files.close()
	}
	p.started.Store(true)
	path := s.entrypoint(k.Dir, abi.Run)
	if err := p.control.Exec(limit, launch.Exec{Argv: append([]string{path}, k.args...), Env: env}); err != nil {
		if errors.As(err, new(syscall.Errno)) {
			err = explainExec(path, err)
		}
		return err
	}
	if !k.rkts() {
		_, err := k.awaitReady(ctx)
		return err
	}
	err = files.until(limit, k.ended, func() (bool, error) { return supervisorOf(k.Dir) != 0, nil })
	if errors.Is(err, context.DeadlineExceeded) {
		return k.hung(limit)
	}
	if errors.Is(err, errEnded) && k.exit.Code != unfit && k.exit.Code != misused {
		return nil // the app was over before `run` could say that it is there, or did not
	}
	return err
}

// Exit codes of rkt's programs: what they could not do, and arguments that they do
// not know.
const (
	unfit   = 254
	misused = 2
)

// failed ends the process of a `run` that did not become ready, and describes that.
func (p *onlyProcess) failed(err error) error {
	k := p.call
	e := &EntrypointError{Stage1: k.stage1.name, Entrypoint: abi.Run, Code: -1}
	k.kill()
	if errors.Is(err, errEnded) {
		words := ""
		if !k.rkts() {
			words = k.words.stop()
		}
		e.describe(k.exit, words)
		if k.rkts() {
			e.Text = fmt.Sprintf("it ended with code %d before it wrote pid or ppid; what it had to say is in the container's output", k.exit.Code)
		}
	} else {
		e.Text, e.Err = err.Error(), err
	}
	e.Duration = time.Since(k.began)
	return e
}

// Enter executes `enter`.
func (s *Immutable) Enter(ctx context.Context, c pod.Call, args []string, stdio [3]*os.File) (*pod.Process, error) {
	c.Leader = s.leader(c)
	if s.manifest.rkts() {
		s.mu.Lock()
		p := s.run
		s.mu.Unlock()
		if p == nil || p.app == nil {
			return nil, s.refused("no such app", errdefs.ErrNotFound)
		}
		return s.enter(ctx, c, args, stdio, specOf(&p.app.Request))
	}
	return s.Stage1.Enter(ctx, c, args, stdio)
}

// leader returns the pid that `enter` is to be given: what `pid` says, else the only
// child of the process that `ppid` names, else the process of `run`.
func (s *private) leader(c pod.Call) int {
	if pid, err := readPID(c.Dir + "/" + pidFile); err == nil {
		return pid
	}
	if parent, err := readPID(c.Dir + "/" + ppidFile); err == nil {
		if children := childrenOf(parent); len(children) == 1 {
			return children[0]
		}
		return parent
	}
	return c.Leader
}

// signal sends a signal to a process of an app by its host pid.
func (s *Immutable) signal(p *onlyProcess, c pod.Call) error {
	sig := syscall.Signal(c.Request.Signal)
	if c.Request.Exec != "" {
		return s.signalExec(c)
	}
	if p == nil {
		return s.refused("no such app", errdefs.ErrNotFound)
	}
	select {
	case <-p.call.ended:
		return s.refused("process already finished", errdefs.ErrNotFound)
	default:
	}
	if !p.started.Load() { // it would not get it before it is started, and may not want it then
		if proc.Fatal(sig) {
			sig = unix.SIGKILL
		}
		return p.pidfdSignal(sig)
	}
	p.told.Store(int32(sig))
	pid := s.mainPID(c)
	if pid == p.call.child.PID() {
		return p.pidfdSignal(sig)
	}
	return signalPID(pid, sig)
}

package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// fakeStage1 isolates nothing. Its apps are shells that block on a pipe until
// they are started and then run the script that the test has put under the
// app's container id. It supervises as a stage1 of its own would: it records an
// exit and then tells of it.
type fakeStage1 struct {
	children *proc.Children
	scripts  map[string]string       // by container id, or container id/exec id
	lacks    abi.Entrypoint          // of those that every stage1 has
	orphans  bool                    // leaves its processes to stage 0, as shell scripts do
	declares map[abi.Entrypoint]bool // beside those that every stage1 has

	// What the next call of an entrypoint does instead.
	mu       sync.Mutex
	fail     map[abi.Entrypoint]error
	hold     map[abi.Entrypoint]chan struct{}
	calls    []abi.Entrypoint
	checked  string // the last spec
	notices  *os.File
	apps     map[string]*fakeApp
	done     chan struct{}
	asked    abi.Request // of run
	restored []string    // checkpoints
	quiet    bool        // keep exits to itself, as a dead supervisor does
	worded   bool        // say in notices how a process has ended, and record nothing
	deaf     bool        // hang in app/signal; set before the pod is used
	stuck    bool        // hang in run; set before the pod is used

	pretends bool   // to hold namespaces that it does not know
	pids     string // a file for the pids of holders
	litters  bool   // leave a process with the pod's lock
	litter   processRecord
}

type fakeApp struct {
	child *proc.Child
	gate  *os.File

	started bool
}

var _ Stage1 = (*fakeStage1)(nil)

func newFakeStage1(children *proc.Children) *fakeStage1 {
	return &fakeStage1{
		children: children, scripts: map[string]string{},
		declares: map[abi.Entrypoint]bool{},
		fail:     map[abi.Entrypoint]error{}, hold: map[abi.Entrypoint]chan struct{}{}, apps: map[string]*fakeApp{},
	}
}

func (f *fakeStage1) Name() string   { return "fake" }
func (f *fakeStage1) Digest() string { return "sha512-" + fmt.Sprintf("%0128d", 7) }

func (f *fakeStage1) CheckSpec(spec []byte) error {
	f.mu.Lock()
	f.checked = string(spec)
	f.mu.Unlock()
	return f.enter("features")
}
func (f *fakeStage1) Detach(string) error { return nil }

func (f *fakeStage1) Has(e abi.Entrypoint) bool {
	switch e {
	case f.lacks:
		return false
	case abi.AppPause, abi.AppResume, abi.AppUpdate, abi.AppStats, abi.AppCheckpoint:
		return f.declares[e]
	}
	return true
}

func (f *fakeStage1) Attach(dir string) error {
	return os.MkdirAll(filepath.Join(dir, abi.StatusDir), 0o755)
}

// script sets what an app or exec runs.
func (f *fakeStage1) script(key, script string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scripts[key] = script
}

// scriptOf returns it.
func (f *fakeStage1) scriptOf(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scripts[key]
}

// enter notes a call, and makes it wait or fail if the test wants so.
func (f *fakeStage1) enter(e abi.Entrypoint) error {
	f.mu.Lock()
	f.calls = append(f.calls, e)
	err, hold := f.fail[e], f.hold[e]
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return err
}

// holder starts the process that holds a sandbox's namespaces. It is left to stage
// 0, as by shell scripts.
func (f *fakeStage1) holder(c Call) (abi.Ready, error) {
	flags := map[string]uintptr{"ipc": syscall.CLONE_NEWIPC, "uts": syscall.CLONE_NEWUTS}
	var clone uintptr
	for _, ns := range c.Request.Sandbox.Namespaces {
		clone |= flags[ns.Type]
	}
	if f.pretends {
		clone = 0
	}
	file := map[int]string{1: "tasks", 2: "cgroup.procs"}[c.Request.Cgroup.Version]
	script := "read go; "
	for _, d := range c.Request.Cgroup.Dirs {
		script += "echo 0 > " + filepath.Join(d, file) + "; "
	}
	if f.pids != "" {
		script += "echo $$ >> " + f.pids + "; "
	}
	r, w, err := os.Pipe()
	if err != nil {
		return abi.Ready{}, err
	}
	defer r.Close()
	in, told, err := os.Pipe()
	if err != nil {
		return abi.Ready{}, err
	}
	defer in.Close()
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", script + "echo in >&3; exec sleep 300 >/dev/null 2>&1 3>&-"}, &os.ProcAttr{
		Files: []*os.File{r, told, os.Stderr, told}, Sys: &syscall.SysProcAttr{Cloneflags: clone, Setsid: true},
	})
	told.Close()
	if err != nil {
		return abi.Ready{}, err
	}
	_, _ = w.WriteString("go\n")
	w.Close()
	if _, err := in.Read(make([]byte, 3)); err != nil {
		return abi.Ready{}, fmt.Errorf("the holder did not reach its cgroup: %w", err)
	}
	start, err := proc.StartTime(p.Pid)
	ready := abi.Ready{PID: p.Pid, StartTime: start}
	return ready, errors.Join(err, p.Release())
}

func (f *fakeStage1) Run(ctx context.Context, c Call, lock *os.File) (*Supervisor, error) {
	if err := f.enter(abi.Run); err != nil {
		return nil, err
	}
	if f.litters {
		if err := f.drop(lock); err != nil {
			return nil, err
		}
	}
	if f.stuck {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	leader := abi.Ready{PID: os.Getpid()}
	if c.Request.Sandbox != nil {
		if leader, err = f.holder(c); err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	f.mu.Lock()
	f.notices, f.done, f.quiet, f.asked = w, done, false, c.Request
	f.mu.Unlock()
	kill := func(syscall.Signal) error { f.die(); return nil }
	return &Supervisor{
		PID: os.Getpid(), Leader: leader, Notices: r, Done: done,
		Signal: kill, Kill: func() error { return kill(syscall.SIGKILL) },
	}, nil
}

// die ends the supervisor and none of its apps.
func (f *fakeStage1) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
	default:
		f.quiet = true
		f.notices.Close()
		close(f.done)
	}
}

func (f *fakeStage1) Add(_ context.Context, c Call, _ [3]*os.File) (*Process, error) {
	if err := f.enter(abi.AppAdd); err != nil {
		return nil, err
	}
	if cp := c.Request.Checkpoint; cp != nil {
		f.mu.Lock()
		f.restored = append(f.restored, cp.Path)
		f.mu.Unlock()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p, err := f.spawn(c, "", "read go && { "+f.scriptOf(c.Request.Container)+"\n}", r)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.apps[c.Request.App].gate = w
	f.mu.Unlock()
	return p, nil
}

func (f *fakeStage1) Enter(_ context.Context, c Call, _ []string, _ [3]*os.File) (*Process, error) {
	if err := f.enter(abi.Enter); err != nil {
		return nil, err
	}
	return f.spawn(c, c.Request.Exec, f.scriptOf(c.Request.Container+"/"+c.Request.Exec), nil)
}

// spawn starts a shell in the app's cgroup.
func (f *fakeStage1) spawn(c Call, exec, script string, stdin *os.File) (*Process, error) {
	if stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		stdin = null
	}
	join := ""
	for _, d := range c.Request.Cgroup.Dirs {
		file := "tasks"
		if c.Request.Cgroup.Version == 2 {
			file = "cgroup.procs"
		}
		join += "echo 0 > " + filepath.Join(d, file) + "\n"
	}
	inside, told, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	argv := []string{"/bin/sh", "-c", join + "echo >&3; exec 3>&-\n" + script}
	pid, child, err := f.start(argv, &os.ProcAttr{
		Files: []*os.File{stdin, os.Stderr, os.Stderr, told}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	told.Close()
	if err != nil {
		return nil, err
	}
	if _, err := inside.Read(make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("the shell did not reach its cgroup: %w", err)
	}
	start, _ := proc.StartTime(pid) // it may have ended by now
	f.mu.Lock()
	f.apps[c.Request.App+exec] = &fakeApp{child: child}
	f.mu.Unlock()
	if child == nil {
		return &Process{PID: pid, StartTime: start, Recorder: RecordedByStage0}, nil
	}
	go f.reap(c.Dir, c.Request.App, exec, child)
	return &Process{PID: pid, StartTime: start}, nil
}

// start starts a process. There is no Child if nobody is to wait for it.
func (f *fakeStage1) start(argv []string, attr *os.ProcAttr) (int, *proc.Child, error) {
	if f.orphans {
		p, err := os.StartProcess(argv[0], argv, attr)
		if err != nil {
			return 0, nil, err
		}
		pid := p.Pid
		return pid, nil, p.Release()
	}
	child, err := f.children.Start(argv, attr)
	if err != nil {
		return 0, nil, err
	}
	return child.PID(), child, nil
}

func (f *fakeStage1) reap(dir, app, exec string, child *proc.Child) {
	st := abi.Status(child.Wait())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.quiet {
		return
	}
	notice := abi.Notice{App: app, Exec: exec}
	if f.worded {
		notice.Status = &st
	} else if err := abi.WriteStatus(filepath.Join(dir, abi.StatusDir), app, exec, st); err != nil {
		return // the pod has gone
	}
	_, _ = f.notices.Write(notice.Format())
}

// tell writes lines to the notice pipe.
func (f *fakeStage1) tell(lines ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range lines {
		_, _ = f.notices.WriteString(l + "\n")
	}
}

func (f *fakeStage1) Invoke(ctx context.Context, c Call) error {
	e := c.Request.Entrypoint
	err := f.enter(e)
	if err == nil && e == abi.AppSignal && f.deaf {
		<-ctx.Done()
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	a := f.apps[c.Request.App+c.Request.Exec]
	f.mu.Unlock()
	switch e {
	case abi.Stop:
		f.die()
	case abi.AppStart:
		f.mu.Lock()
		a.started = true
		f.mu.Unlock()
		_, err := a.gate.WriteString("go\n")
		return err
	case abi.AppSignal:
		if a == nil {
			return errdefs.ErrNotFound
		}
		sig := syscall.Signal(c.Request.Signal)
		if f.waits(a) && proc.Fatal(sig) {
			sig = syscall.SIGKILL
		}
		return syscall.Kill(-a.child.PID(), sig)
	}
	return nil
}

// waits tells whether an app waits for its start, or is an exec.
func (f *fakeStage1) waits(a *fakeApp) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return a.gate != nil && !a.started
}

// called tells whether an entrypoint was executed.
func (f *fakeStage1) called(e abi.Entrypoint) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == e {
			return true
		}
	}
	return false
}

func (f *fakeStage1) set(e abi.Entrypoint, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[e] = err
}

// recorder keeps the events of a pod.
type recorder struct {
	mu     sync.Mutex
	events []Event
	more   chan struct{}
}

func (r *recorder) Publish(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// forget begins anew.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// words returns the events so far, as "kind id" or "kind id/exec".
func (r *recorder) words() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, e := range r.events {
		w := e.Kind.String() + " " + string(e.App)
		if e.Exec != "" {
			w += "/" + string(e.Exec)
		}
		all = append(all, w)
	}
	return all
}

// noStdio is the streams of a process that nobody listens to.
type noStdio struct {
	mu     sync.Mutex
	closed int
}

func (*noStdio) Files() [3]*os.File    { return [3]*os.File{} }
func (*noStdio) Begin(*os.File) error  { return nil }
func (*noStdio) CloseStdin() error     { return nil }
func (*noStdio) Resize(Size) error     { return nil }
func (*noStdio) Drain(context.Context) {}
func (s *noStdio) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

// bareRoot is a root that needs no mount.
type bareRoot struct{}

func (bareRoot) Empty() bool                         { return true }
func (bareRoot) Mount(context.Context, string) error { return nil }

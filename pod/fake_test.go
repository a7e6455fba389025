package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// fakeStage1 isolates nothing. Its apps are shells that block on a pipe until
// they are started and then run the script that the test has put under the
// app's container id. It supervises the apps itself: it records an exit and then
// writes a notice. With the method on, a test sets what a call does before its
// work, or in place of it.
type fakeStage1 struct {
	children *proc.Children
	orphans  bool // leaves its processes to stage 0, as shell scripts do
	disowns  bool // says of the processes that it leaves to stage 0 that it records their exits
	worded   bool // says in notices how a process has ended, and records nothing

	mu      sync.Mutex
	has     map[abi.Entrypoint]bool // where it differs from what every stage1 has
	own     []abi.Own
	counts  string            // what app/stats answers
	scripts map[string]string // by container id, container id/exec id, or ofHolder
	plan    map[abi.Entrypoint][]act
	calls   []abi.Request
	notices *os.File
	apps    map[string]*fakeApp
	done    chan struct{}

	unknown []string // what CheckSpec and its like return
	refuse  error    // of CheckResources
	noted   []string // by NoteUnknown: directory, app, exec and fields
	debugs  []DebugNote
}

const (
	features abi.Entrypoint = "features" // stands for CheckSpec in a plan and among the calls
	ofHolder                = "holder"   // the key of the script of what holds a sandbox's namespaces
)

// act is what a call does before its work. If it returns an error, the call does not
// do its work.
type act func(*fakeCall) error

// fakeCall is one call of an entrypoint. An act may change its request.
type fakeCall struct {
	ctx  context.Context
	lock *os.File // the pod's, in run
	Call
}

func fails(err error) act { return func(*fakeCall) error { return err } }

// hangs is an act that ends with the call's context.
func hangs(t *fakeCall) error {
	<-t.ctx.Done()
	return context.Cause(t.ctx)
}

func waitsFor(c <-chan struct{}) act {
	return func(*fakeCall) error {
		<-c
		return nil
	}
}

// pretends is an act after which the holder of a sandbox lacks the pod's namespaces.
func pretends(t *fakeCall) error {
	s := *t.Request.Sandbox
	s.Namespaces = nil
	t.Request.Sandbox = &s
	return nil
}

// on sets the acts of the next calls of an entrypoint, in order. The last act is also
// that of all further calls. Without acts, calls just do their work.
func (f *fakeStage1) on(e abi.Entrypoint, acts ...act) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan[e] = acts
}

// begin notes a call and does its act.
func (f *fakeStage1) begin(t *fakeCall) error {
	f.mu.Lock()
	e := t.Request.Entrypoint
	f.calls = append(f.calls, t.Request)
	var do act
	if acts := f.plan[e]; len(acts) > 0 {
		do = acts[0]
		if len(acts) > 1 {
			f.plan[e] = acts[1:]
		}
	}
	f.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(t)
}

// callsOf returns the requests of an entrypoint's calls.
func (f *fakeStage1) callsOf(e abi.Entrypoint) []abi.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(r abi.Request) bool { return r.Entrypoint != e })
}

// called reports whether an entrypoint was executed.
func (f *fakeStage1) called(e abi.Entrypoint) bool { return len(f.callsOf(e)) > 0 }

type fakeApp struct {
	child *proc.Child
	gate  *os.File

	started bool
}

var _ Stage1 = (*fakeStage1)(nil)

func newFakeStage1(children *proc.Children) *fakeStage1 {
	return &fakeStage1{
		children: children, has: map[abi.Entrypoint]bool{}, scripts: map[string]string{},
		plan: map[abi.Entrypoint][]act{}, apps: map[string]*fakeApp{},
	}
}

func (f *fakeStage1) Name() string   { return "fake" }
func (f *fakeStage1) Digest() string { return "sha512-" + fmt.Sprintf("%0128d", 7) }

func (f *fakeStage1) CheckSpec(a *spec.App) ([]string, error) {
	return f.unknown, f.begin(&fakeCall{ctx: context.Background(), Call: Call{Request: abi.Request{Entrypoint: features, Spec: a.Text}}})
}

func (f *fakeStage1) CheckProcess(p *spec.Process) ([]string, error) {
	return f.unknown, f.begin(&fakeCall{ctx: context.Background(), Call: Call{Request: abi.Request{Entrypoint: features, Process: p.Text}}})
}

func (f *fakeStage1) CheckResources(*spec.Resources) ([]string, error) { return f.unknown, f.refuse }

func (f *fakeStage1) NoteUnknown(c Call, fields []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noted = append(f.noted, strings.Join(append([]string{c.Dir, c.Request.App, c.Request.Exec}, fields...), " "))
}

func (f *fakeStage1) NoteDebug(_ Call, n DebugNote) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.debugs = append(f.debugs, n)
}

func (f *fakeStage1) Detach(string) error { return nil }

func (f *fakeStage1) Has(e abi.Entrypoint) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if has, ok := f.has[e]; ok {
		return has
	}
	switch e {
	case abi.AppPause, abi.AppResume, abi.AppUpdate, abi.AppStats, abi.AppCheckpoint, abi.Network:
		return false
	}
	return true
}

func (f *fakeStage1) Owns(o abi.Own) bool { return slices.Contains(f.own, o) }

func (f *fakeStage1) Ask(ctx context.Context, c Call) ([]byte, error) {
	if err := f.begin(&fakeCall{ctx: ctx, Call: c}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return []byte(f.counts), nil
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

// scriptOf returns the script of an app or exec.
func (f *fakeStage1) scriptOf(key string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scripts[key]
}

// hold starts the process that holds a sandbox's namespaces. The process becomes a
// child of stage 0, as with stage1s that are shell scripts.
func (f *fakeStage1) hold(c Call) (abi.Ready, error) {
	flags := map[string]uintptr{"ipc": syscall.CLONE_NEWIPC, "uts": syscall.CLONE_NEWUTS}
	var clone uintptr
	for _, ns := range c.Request.Sandbox.Namespaces {
		clone |= flags[ns.Type]
	}
	file := map[int]string{1: "tasks", 2: "cgroup.procs"}[c.Request.Cgroup.Version]
	script := "read go; "
	for _, d := range c.Request.Cgroup.Dirs {
		script += "echo 0 > " + filepath.Join(d, file) + "; "
	}
	if d := c.Request.Cgroup.Unified; d != "" {
		script += "echo 0 > " + filepath.Join(d, "cgroup.procs") + "; "
	}
	script += f.scriptOf(ofHolder)
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
	t := &fakeCall{ctx, lock, c}
	if err := f.begin(t); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	leader := abi.Ready{PID: os.Getpid()}
	if c.Request.Sandbox != nil {
		if leader, err = f.hold(t.Call); err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	f.mu.Lock()
	f.notices, f.done = w, done
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
	if !f.dead() {
		f.notices.Close()
		close(f.done)
	}
}

// dead reports whether the supervisor has ended. The caller holds mu.
func (f *fakeStage1) dead() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *fakeStage1) Add(ctx context.Context, c Call, _ [3]*os.File) (*Process, error) {
	if err := f.begin(&fakeCall{ctx: ctx, Call: c}); err != nil {
		return nil, err
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

func (f *fakeStage1) Enter(ctx context.Context, c Call, _ [3]*os.File) (*Process, error) {
	if err := f.begin(&fakeCall{ctx: ctx, Call: c}); err != nil {
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
	if d := c.Request.Cgroup.Unified; d != "" {
		join += "echo 0 > " + filepath.Join(d, "cgroup.procs") + "\n"
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
	if child == nil && f.disowns {
		return &Process{PID: pid, StartTime: start}, nil
	}
	if child == nil {
		return &Process{PID: pid, StartTime: start, Recorder: RecordedByStage0}, nil
	}
	go f.reap(c.Dir, c.Request.App, exec, child)
	return &Process{PID: pid, StartTime: start}, nil
}

// start starts a process. It returns no Child if stage 0 is to wait for the process.
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
	if f.dead() { // which keeps exits to itself
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
	if err := f.begin(&fakeCall{ctx: ctx, Call: c}); err != nil {
		return err
	}
	f.mu.Lock()
	a := f.apps[c.Request.App+c.Request.Exec]
	f.mu.Unlock()
	switch c.Request.Entrypoint {
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

// Call is what a Collector calls.
func (f *fakeStage1) Call(ctx context.Context, podDir string, leader int, r abi.Request) error {
	return f.Invoke(ctx, Call{Dir: podDir, Leader: leader, Request: r})
}

// waits reports whether an app waits for its start, or is an exec.
func (f *fakeStage1) waits(a *fakeApp) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return a.gate != nil && !a.started
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

// noStdio is the streams of a process without input and output.
type noStdio struct {
	mu     sync.Mutex
	closed int
}

func (*noStdio) Files() [3]*os.File                { return [3]*os.File{} }
func (*noStdio) Begin(*os.File) error              { return nil }
func (*noStdio) CloseStdin() error                 { return nil }
func (*noStdio) Resize(Size) error                 { return nil }
func (*noStdio) Settle(context.Context, time.Time) {}
func (*noStdio) Drain(context.Context)             {}
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
func (bareRoot) Mounts() ([]abi.Mount, error)        { return nil, nil }

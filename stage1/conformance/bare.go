package conformance

import (
	"bufio"
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

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// barePod is a pod directory whose entrypoints are called one by one.
type barePod struct {
	t      *trial
	dir    string
	stage1 pod.Stage1
	sup    *pod.Supervisor // set when it runs

	groups []*cgroup.Group

	// words allows the stage1 to send notices that say how a process ended. Set it before
	// run.
	words bool

	mu      sync.Mutex
	notices map[string]*notice // by "APP EXEC"
	silent  chan struct{}      // closed at the end of the notice pipe
}

// notice is the first notice of a process.
type notice struct {
	told chan struct{} // closed when the other fields are set
	said abi.Notice
	err  error // error in the words that say how the process ended
}

// barePod makes a pod. Its run was not called yet.
func (t *trial) barePod() *barePod { return t.barePodIn("pod") }

func (t *trial) barePodIn(parent string) *barePod {
	b := &barePod{
		t: t, dir: filepath.Join(t.dir, parent, t.podID), stage1: must(t.newStage1()), words: true,
		notices: map[string]*notice{}, silent: make(chan struct{}),
	}
	try(os.MkdirAll(b.dir, 0o750))
	try(b.stage1.Attach(b.dir))
	t.later(func(context.Context) error { return b.stage1.Detach(b.dir) })
	t.later(b.end)
	return b
}

// runningPod makes a pod and calls its run.
func (t *trial) runningPod(ctx context.Context) *barePod {
	b := t.barePod()
	b.run(ctx)
	return b
}

// run executes run with the lock. This process keeps no descriptor of the lock.
func (b *barePod) run(ctx context.Context) {
	lock := must(os.Open(b.dir))
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		try(fmt.Errorf("lock the pod: %w", err))
	}
	c := b.call(abi.Run, "")
	c.Request.NoticeWords = b.words
	b.sup = must(b.stage1.Run(ctx, c, lock))
	go b.listen()
}

// listen reads the notices until the pipe ends.
func (b *barePod) listen() {
	defer close(b.silent)
	defer b.sup.Notices.Close()
	lines := bufio.NewScanner(b.sup.Notices)
	for lines.Scan() {
		said, err := abi.ParseNotice(lines.Text(), time.Now())
		if said.App == "" {
			continue
		}
		n := b.notice(said.App, said.Exec)
		if !closed(n.told) { // ignore a second notice
			n.said, n.err = said, err
			close(n.told)
		}
	}
}

// notice returns the notice of a process. The notice may not have arrived yet.
func (b *barePod) notice(app, exec string) *notice {
	key := strings.TrimSpace(app + " " + exec)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notices[key] == nil {
		b.notices[key] = &notice{told: make(chan struct{})}
	}
	return b.notices[key]
}

// end ends the pod as stage 0 does: it calls stop and gc, and kills the processes in its
// cgroups. It returns an error if stop alone does not end the pod.
func (b *barePod) end(ctx context.Context) error {
	var err error
	if b.sup != nil && !closed(b.sup.Done) {
		err = b.stop(ctx, false)
	}
	if b.sup != nil && b.t.image.Has(abi.GC) {
		err = errors.Join(err, b.invoke(ctx, abi.GC, ""))
	}
	for _, g := range b.groups {
		err = errors.Join(err, g.Kill(ctx), g.Remove(ctx))
	}
	return err
}

// stop calls the entrypoint stop, or sends SIGTERM if the image has none, and waits for the
// end of the supervisor.
func (b *barePod) stop(ctx context.Context, force bool) error {
	c := b.call(abi.Stop, "")
	c.Force = force
	var err error
	if b.t.image.Has(abi.Stop) {
		err = b.stage1.Invoke(ctx, c)
	} else {
		err = b.sup.Signal(syscall.SIGTERM)
	}
	if over := b.awaitEnd(ctx); over != nil {
		_ = b.sup.Kill()
		<-b.sup.Done
		return errors.Join(err, fmt.Errorf("after stop the supervisor goes on: %w", over))
	}
	return err
}

// stopLimit is how long a supervisor may take to end, on an idle machine.
const stopLimit = 10 * time.Second

func (b *barePod) awaitEnd(ctx context.Context) error {
	limit := stopLimit * Pace()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not ended within %s", limit))
	defer cancel()
	return await(ctx, b.sup.Done)
}

// call returns a call with the fields that all calls have.
func (b *barePod) call(e abi.Entrypoint, app string) pod.Call {
	c := pod.Call{Dir: b.dir, Request: abi.Request{Entrypoint: e, Pod: b.t.podID, App: app}}
	if b.sup != nil {
		c.Leader = b.sup.Leader.PID
	}
	return c
}

// invoke calls an entrypoint for the pod, or for an app that need not exist.
func (b *barePod) invoke(ctx context.Context, e abi.Entrypoint, app string) error {
	c := b.call(e, app)
	if app != "" {
		c.Request.Container, c.Request.Bundle = "Verify_"+app, b.t.dir
	}
	return b.stage1.Invoke(ctx, c)
}

// bareApp is an app of a bare pod.
type bareApp struct {
	b       *barePod
	name    string
	request abi.Request // of app/add, with spec
	spec    *spec.App
	group   *cgroup.Group
	streams *streams
	*bareProcess
}

// bareProcess is a process that an entrypoint has made.
type bareProcess struct {
	*pod.Process
	exit chan abi.Status // receives its exit
}

// prepare makes the files, mounts and cgroup that stage 0 makes before app/add.
func (b *barePod) prepare(name string, change func(*specs.Spec), verb ...string) *bareApp {
	t := b.t
	s := t.plainSpec(verb...)
	if change != nil {
		change(s)
	}
	g := must(cgroup.Maker{Children: t.children}.Create(cgroup.Path{Spec: t.cgroups + "/" + name}, s.Linux.Resources))
	b.groups = append(b.groups, g)
	s.Linux.CgroupsPath = g.Path()
	bundle, app := t.bundleOf(s)
	a := &bareApp{b: b, name: name, group: g, request: b.call(abi.AppAdd, name).Request, spec: app}
	a.request.Container, a.request.Bundle, a.request.Rootfs = t.id(), bundle, s.Root.Path
	a.request.Cgroup, a.request.Terminal = g.ABI(), s.Process.Terminal
	a.streams = must(newStreams(s.Process.Terminal))
	t.later(func(context.Context) error { return a.streams.Close() })
	return a
}

// add makes an app by app/add.
func (b *barePod) add(ctx context.Context, name string, change func(*specs.Spec), verb ...string) (*bareApp, error) {
	a := b.prepare(name, change, verb...)
	return a, a.add(ctx)
}

// start makes an app and starts it.
func (b *barePod) start(ctx context.Context, name string, verb ...string) (*bareApp, error) {
	a, err := b.add(ctx, name, nil, verb...)
	if err != nil {
		return nil, err
	}
	return a, a.invoke(ctx, abi.AppStart)
}

func (a *bareApp) call(e abi.Entrypoint) pod.Call {
	c := a.b.call(e, a.name)
	c.Request.Container, c.Request.Bundle = a.request.Container, a.request.Bundle
	return c
}

func (a *bareApp) invoke(ctx context.Context, e abi.Entrypoint) error {
	return a.b.stage1.Invoke(ctx, a.call(e))
}

func (a *bareApp) add(ctx context.Context) error {
	c := a.call(abi.AppAdd)
	c.Request, c.Spec = a.request, a.spec
	defer a.b.t.children.Expect()()
	p, err := a.b.stage1.Add(ctx, c, a.streams.Files())
	if err != nil {
		return err
	}
	a.bareProcess = a.b.watch(p, a.name, "")
	return a.streams.Begin(p.Console)
}

// watch waits for the end of a process as the ABI describes, and records the exits that
// stage 0 records.
func (b *barePod) watch(p *pod.Process, app, exec string) *bareProcess {
	q := &bareProcess{p, make(chan abi.Status, 1)}
	record := func(st abi.Status) { _ = abi.WriteStatus(stage1.StatusDir(b.dir), app, exec, st) }
	deliver := func(st abi.Status) { q.exit <- st }
	switch p.Recorder {
	case pod.RecordedByStage0:
		err := b.t.children.Adopt(p.PID, p.StartTime,
			func(e proc.Exit) { record(abi.Status(e)) }, func(e proc.Exit) { deliver(abi.Status(e)) })
		if errors.Is(err, proc.ErrGone) {
			deliver(abi.Status(proc.Killed()))
		}
	case pod.RecordedByCall:
		go func() {
			st := <-p.Ended
			record(st)
			deliver(st)
		}()
	default:
		n := b.notice(app, exec)
		go func() {
			select {
			case <-n.told:
				if st := n.said.Status; st != nil {
					deliver(*st)
					return
				}
			case <-b.silent:
			}
			if st, err := abi.ReadStatus(stage1.StatusDir(b.dir), app, exec); err == nil {
				deliver(st)
			}
		}()
	}
	return q
}

// ended waits for the end of the process.
func (q *bareProcess) ended(ctx context.Context) (abi.Status, error) {
	select {
	case st := <-q.exit:
		q.exit <- st
		return st, nil
	case <-ctx.Done():
		return abi.Status{}, fmt.Errorf("process %d: its end was not reported: %w", q.PID, context.Cause(ctx))
	}
}

// kill ends the process, and waits until its exit is reported.
func (q *bareProcess) kill(ctx context.Context) error {
	if err := proc.Signal(q.PID, q.StartTime, syscall.SIGKILL); err != nil {
		return err
	}
	_, err := q.ended(ctx)
	return err
}

// codeOf checks the exit code of an entrypoint call.
func codeOf(what string, err error, want ...int) error {
	code := 0
	var e *stage1.EntrypointError
	switch {
	case errors.As(err, &e):
		code = e.Code
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	switch {
	case slices.Contains(want, code):
		return nil
	case err != nil:
		return fmt.Errorf("%s: exit code %d, want %d: %w", what, code, want[0], err)
	}
	return fmt.Errorf("%s: exit code %d, want %d", what, code, want[0])
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

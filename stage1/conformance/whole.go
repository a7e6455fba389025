package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// wholePod is a pod as in the shim.
type wholePod struct {
	*pod.Pod
	t      *trial
	events *events
}

// wholePod makes a pod without apps. It ends with the trial.
func (t *trial) wholePod() *wholePod {
	t.pods++
	w := &wholePod{t: t, events: &events{changed: make(chan struct{})}}
	w.Pod = pod.New(pod.PodConfig{
		Store:    t.store,
		Key:      disk.Key{Daemon: "stage1-verify", Namespace: "verify", Sandbox: fmt.Sprintf("trial-%d.%d", t.trials, t.pods)},
		Children: t.children,
		Events:   w.events,
		OpenStage1: func(context.Context) (pod.Stage1, error) {
			return t.newStage1()
		},
	})
	t.later(w.Close)
	return w
}

// wholeApp is an app of a whole pod.
type wholeApp struct {
	w       *wholePod
	id      pod.AppID
	pid     int
	config  pod.AppConfig
	streams *streams
}

// noRoot is the root file system of an app whose root exists already.
type noRoot struct{}

func (noRoot) Empty() bool                         { return true }
func (noRoot) Mount(context.Context, string) error { return errors.New("there is nothing to mount") }
func (noRoot) Mounts() ([]abi.Mount, error)        { return nil, nil }

// create makes an app. If the check does not delete it, the trial does.
func (w *wholePod) create(ctx context.Context, change func(*specs.Spec), verb ...string) (*wholeApp, error) {
	return w.restore(ctx, "", change, verb...)
}

// restore makes an app. If checkpoint is not empty, the app is restored from it.
func (w *wholePod) restore(ctx context.Context, checkpoint string, change func(*specs.Spec), verb ...string) (*wholeApp, error) {
	a := w.prepareApp(change, verb...)
	a.config.Checkpoint = checkpoint
	return a, a.createNow(ctx)
}

// prepareApp makes the bundle and the streams of an app. createNow then creates the
// app.
func (w *wholePod) prepareApp(change func(*specs.Spec), verb ...string) *wholeApp {
	s := w.t.plainSpec(verb...)
	if change != nil {
		change(s)
	}
	a := &wholeApp{w: w, id: pod.AppID(w.t.id())}
	s.Linux.CgroupsPath = w.t.cgroups + "/" + string(a.id)
	bundle, app := w.t.bundleOf(s)
	a.streams = must(newStreams(s.Process.Terminal))
	a.config = pod.AppConfig{ID: a.id, Bundle: bundle, Spec: app, Rootfs: noRoot{}, Stdio: a.streams, Terminal: s.Process.Terminal}
	w.t.later(a.remove)
	return a
}

// createNow creates the app.
func (a *wholeApp) createNow(ctx context.Context) error {
	st, err := a.w.CreateApp(ctx, a.config)
	a.pid = st.PID
	return err
}

// start makes an app and starts it.
func (w *wholePod) start(ctx context.Context, change func(*specs.Spec), verb ...string) (*wholeApp, error) {
	a, err := w.create(ctx, change, verb...)
	if err != nil {
		return nil, err
	}
	_, err = w.Start(ctx, a.id, "")
	return a, err
}

// waiting makes an app, starts it and waits until its program answers signals.
func (w *wholePod) waiting(ctx context.Context, change func(*specs.Spec)) (*wholeApp, error) {
	a, err := w.start(ctx, change, "wait")
	if err != nil {
		return nil, err
	}
	return a, a.streams.out.awaitWord(ctx, "waiting")
}

// ends waits for an exit, and fails if it has another code than code.
func (a *wholeApp) ends(ctx context.Context, exec pod.ExecID, code uint32) error {
	exit, err := a.w.Wait(ctx, a.id, exec)
	if err != nil {
		return fmt.Errorf("wait for the end: %w", err)
	}
	if exit.Code != code {
		return fmt.Errorf("the exit code is %d, want %d", exit.Code, code)
	}
	return nil
}

// remove kills and deletes the app if it still exists.
func (a *wholeApp) remove(ctx context.Context) error {
	st, err := a.w.Status(a.id, "")
	if errdefs.IsNotFound(err) { // deleted, or never created
		return a.streams.Close()
	}
	if err != nil {
		return err
	}
	if st.State != pod.Created && st.State != pod.Stopped {
		if err := a.w.Kill(ctx, a.id, "", int(syscall.SIGKILL), true); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		if _, err := a.w.Wait(ctx, a.id, ""); err != nil {
			return fmt.Errorf("killed, and its end was not told: %w", err)
		}
	}
	_, err = a.w.Delete(ctx, a.id, "")
	return err
}

// wholeExec is an exec of a wholeApp.
type wholeExec struct {
	*streams
	pid int
}

// exec runs a verb of the kit's program in the app.
func (a *wholeApp) exec(ctx context.Context, id pod.ExecID, change func(*specs.Process), verb ...string) (*wholeExec, error) {
	p := &specs.Process{Args: append([]string{a.w.t.values.inRoot()}, verb...), Cwd: "/", Env: []string{"PATH=/bin"}}
	if change != nil {
		change(p)
	}
	process, s := must(read(p)), must(newStreams(p.Terminal))
	if err := a.w.AddExec(ctx, a.id, pod.ExecConfig{ID: id, Process: process, Stdio: s, Terminal: p.Terminal}); err != nil {
		return nil, err
	}
	pid, err := a.w.Start(ctx, a.id, id)
	return &wholeExec{s, pid}, err
}

// events records the events of a pod.
type events struct {
	mu      sync.Mutex
	all     []pod.Event
	changed chan struct{}
}

// Publish implements pod.Events.
func (e *events) Publish(ev pod.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
	close(e.changed)
	e.changed = make(chan struct{})
}

// kinds lists the events of an app and its execs, up to the first one of the kind last.
func (e *events) kinds(ctx context.Context, id pod.AppID, last pod.EventKind) ([]pod.EventKind, error) {
	for {
		e.mu.Lock()
		changed := e.changed
		var kinds []pod.EventKind
		done := false
		for _, ev := range e.all {
			if ev.App == id {
				kinds = append(kinds, ev.Kind)
				done = done || ev.Kind == last
			}
		}
		e.mu.Unlock()
		if done {
			return kinds, nil
		}
		if err := await(ctx, changed); err != nil {
			return kinds, fmt.Errorf("wait for the event %s after %v: %w", last, kinds, err)
		}
	}
}

// resources returns the JSON of a linux.resources object.
func resources(r specs.LinuxResources) []byte {
	b, _ := json.Marshal(r) // cannot fail for this struct
	return b
}

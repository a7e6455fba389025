package stage1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/fields"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// Stage1 calls the entrypoints of an image. It implements pod.Stage1. Errors of calls are
// of type *EntrypointError.
type Stage1 struct {
	*image.Image
	name     string
	Children *proc.Children
	Dialect  Dialect
	Limit    func(abi.Entrypoint) time.Duration
	rules    Rules
	// undoLimit is how long the stage1 may take to undo a call on its socket.
	undoLimit time.Duration
	excused   *fields.Set // the excused fields of rules
	// declared returns the fields of the image and of stage 0, and the excused fields. The
	// set is made when the first config.json is checked, because `delete` and `-info` check
	// none.
	declared func() *fields.Set

	// ProgramDir is the directory of a pod in which its entrypoints are; RootfsDir if it is empty.
	ProgramDir string

	// Execute makes every call an execution, as if the image declared no socket.
	Execute bool

	supervisor atomic.Pointer[pod.Supervisor] // set when it is ready
	journal    journal.Writer                 // of the pod
	door       door                           // to the pod's supervisor

	// Show, if set, is called with each call just before it is made: with the arguments and
	// the environment of an execution, or with the request that goes to the socket.
	Show func(e abi.Entrypoint, argv, env []string, request []byte)

	// Stuck, if set, is called when a call has not answered in time, before it is ended. The error has
	// its text.
	Stuck func() string

	// Inside, if set, calls a function in the mount namespace in which an entrypoint of the pod is executed. Stage 0
	// itself works in that of the entrypoint "".
	Inside func(abi.Entrypoint, func() error) error
}

var _ pod.Stage1 = (*Stage1)(nil)

// Door returns a stage1 for one pod of the image, if the image is of the kind that the door
// handles, and nil otherwise. The arguments are those of For.
type Door func(i *image.Image, name string, children *proc.Children, rules Rules) pod.Stage1

// Rules say how a pod's stage1 treats specs: the operator's settings for fields, and the
// call by which the stage1's own fields were found.
type Rules struct {
	// Excused are the fields of config.json that the stage1 may ignore, as JSON pointers
	// like those of its features document.
	Excused []string
	// RefuseUnknown refuses fields that no known version of the OCI runtime spec has,
	// unless the stage1 declares them or they are excused.
	RefuseUnknown bool
	// Probe has the entries for the pod's journal of the call by which Probe got the
	// features.
	Probe []journal.Entry
}

// For returns a stage1 for one pod of the image. The stage1 remembers the pod's processes
// and mounts, so it must not be used for another pod. It is made by the first door that
// handles the image. If no door does, and the image has interface version 7 and pods that
// can get apps while they run, this package makes the stage1. For other images the error
// is errdefs.ErrNotImplemented. The other arguments are those of New and Abide.
func For(i *image.Image, name string, children *proc.Children, rules Rules, doors ...Door) (pod.Stage1, error) {
	for _, open := range doors {
		if s := open(i, name, children, rules); s != nil {
			return s, nil
		}
	}
	if i.RktABI() || !i.Mutable() {
		return nil, fmt.Errorf("stage1 %s: this program does not call images of interface version %d whose pods are as this one's: %w", name, i.Version(), errdefs.ErrNotImplemented)
	}
	s := New(i, name, children)
	s.Abide(rules)
	return s, nil
}

// New returns the stage1 of an image of interface version 7 whose pods can get apps while
// they run. name is the name by which people know the stage1. children starts the stage1's
// processes; it must be the only Children of this process.
func New(i *image.Image, name string, children *proc.Children) *Stage1 {
	return NewOf(i, name, children, version7{})
}

// NewOf is New for a dialect other than that of interface version 7.
func NewOf(i *image.Image, name string, children *proc.Children, d Dialect) *Stage1 {
	s := &Stage1{Image: i, name: name, Children: children, Dialect: d, undoLimit: 10 * time.Second}
	s.Limit = func(e abi.Entrypoint) time.Duration { return cmp.Or(i.Deadline(e), deadline(e)) }
	s.Abide(Rules{})
	return s
}

// Abide sets the rules of the stage1. Call it before the Stage1 is used.
func (s *Stage1) Abide(rules Rules) {
	s.rules, s.excused = rules, fields.NewSet(rules.Excused)
	s.declared = sync.OnceValue(func() *fields.Set {
		return fields.NewSet(Stage0Fields(s.Owns(abi.OwnResources)), s.Dialect.Fields(s.Image), rules.Excused)
	})
}

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

// Name returns the name by which people know the stage1.
func (s *Stage1) Name() string { return s.name }

// Run executes `run` and returns when the supervisor is ready. It reads the supervisor's
// output as long as the supervisor runs, and writes the end of the output to the journal
// after that.
func (s *Stage1) Run(ctx context.Context, c pod.Call, lock *os.File) (*pod.Supervisor, error) {
	k, err := s.NewCall(c, abi.Run)
	if err != nil {
		return nil, err
	}
	k.Lock = lock
	k.Trace(ctx)
	ready, err := k.create(ctx)
	if err != nil {
		return nil, k.Fail(err)
	}
	p, err := proc.Open(k.Child.PID(), 0) // not reaped before release
	if err != nil {
		return nil, k.Fail(err)
	}
	done := make(chan struct{})
	signal := func(sig syscall.Signal) error {
		err := p.Signal(sig)
		select {
		case <-k.Ended: // do not use p, which may be closed
			return nil
		default:
			return err
		}
	}
	sup := &pod.Supervisor{
		PID: k.Child.PID(), Leader: ready, Notices: k.takeNotices(), Done: done,
		Signal: signal, Kill: func() error { return signal(syscall.SIGKILL) },
	}
	s.supervisor.Store(sup)
	k.Release()
	k.Journal(journal.Ready)
	go func() {
		defer close(done)
		k.Leave()
		_ = p.Close()
	}()
	return sup, nil
}

// killSupervisor ends the pod, if this process has started its supervisor.
func (s *Stage1) killSupervisor() {
	if sup := s.supervisor.Load(); sup != nil {
		_ = sup.Kill()
	}
}

// Add executes `app/add` and returns the app's first process, blocked before its
// exec.
func (s *Stage1) Add(ctx context.Context, c pod.Call, stdio [3]*os.File) (*pod.Process, error) {
	k, err := s.NewCall(c, abi.AppAdd)
	if err != nil {
		return nil, err
	}
	k.Stdio = stdio
	k.Trace(ctx)
	ready, err := k.create(ctx)
	if err == nil {
		err = k.awaitEnd(ctx)
	}
	var recorder pod.Recorder
	if err == nil {
		recorder, _, err = k.recorder(ctx, ready)
	}
	if err != nil {
		return nil, k.Fail(err)
	}
	p := k.process(ready, recorder)
	k.Release()
	k.Leave()
	return p, nil
}

// Enter executes `enter` and returns the process, which runs its program.
func (s *Stage1) Enter(ctx context.Context, c pod.Call, stdio [3]*os.File) (*pod.Process, error) {
	k, err := s.NewCall(c, abi.Enter)
	if err != nil {
		return nil, err
	}
	k.Stdio = stdio
	k.Args = append(k.Args, c.Process.OCI.Args...)
	k.Trace(ctx)
	p, exit, err := k.enter(ctx)
	if err != nil {
		return nil, k.Fail(err)
	}
	k.Release()
	if p.Recorder == pod.RecordedByCall {
		k.Journal(journal.Ready)
	}
	if exit == nil {
		go k.Leave()
		return p, nil
	}
	ended := make(chan abi.Status, 1)
	p.Ended = ended
	go func() {
		k.Leave()
		exit(ended)
	}()
	return p, nil
}

// enter makes the call, and returns its process and the process's outcome.
func (k *Call) enter(ctx context.Context) (*pod.Process, outcome, error) {
	ready, err := k.create(ctx)
	if err != nil {
		return nil, nil, err
	}
	recorder, is, err := k.recorder(ctx, ready)
	if err != nil {
		return nil, nil, err
	}
	exit, err := k.outcome(ready, recorder, is)
	if err != nil {
		return nil, nil, err
	}
	return k.process(ready, recorder), exit, nil
}

// Invoke executes any other entrypoint.
func (s *Stage1) Invoke(ctx context.Context, c pod.Call) error {
	k, err := s.NewCall(c, c.Request.Entrypoint)
	if err != nil {
		return err
	}
	k.Trace(ctx)
	if err = s.reattach(k); err == nil {
		err = k.Start()
	}
	if err == nil {
		err = k.awaitEnd(ctx)
	}
	if err != nil {
		return k.Fail(err)
	}
	k.Release()
	k.Leave()
	return nil
}

// reattach mounts the tree for the `gc` of a pod without mounts. A pod has none after a
// reboot, or if the shim was killed while it made the pod. The owner of a pod's mount namespace mounts the tree there.
func (s *Stage1) reattach(k *Call) error {
	if k.Entrypoint != abi.GC || s.Inside != nil {
		return nil
	}
	if _, err := os.Lstat(s.EntrypointIn(k.Dir, abi.GC)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.Attach(k.Dir)
}

// Within calls f in the mount namespace in which stage 0 works on the pod.
func (s *Stage1) Within(f func() error) error { return s.within("", f) }

// within calls f in the mount namespace of an entrypoint.
func (s *Stage1) within(e abi.Entrypoint, f func() error) error {
	if s.Inside == nil {
		return f()
	}
	return s.Inside(e, f)
}

// Has reports whether the image declares an entrypoint and stage 0 calls it.
func (s *Stage1) Has(e abi.Entrypoint) bool { return s.Image.Has(e) && !s.Skips(e) }

// NewCall returns a call that is not started.
func (s *Stage1) NewCall(c pod.Call, e abi.Entrypoint) (*Call, error) {
	if !s.Image.Has(e) { // a call by hand may also be one of those that stage 0 skips
		return nil, &EntrypointError{
			Stage1: s.name, Entrypoint: e, Code: -1, Err: errdefs.ErrNotImplemented,
			Text: "the stage1 does not have this entrypoint (its manifest has no annotation " + abi.AnnotationPrefix + string(e) + ")",
		}
	}
	if e == abi.Run && !s.Owns(abi.OwnChroot) && proc.IsChrooted() {
		return nil, s.Refused("the root of the shim is not that of its mount namespace, because containerd was started by chroot(8), and execs would be in the "+
			"machine's root: use the stage1 native, or start containerd by pivot_root(8)", errdefs.ErrFailedPrecondition)
	}
	c.Request.Version = abi.Version
	c.Request.Entrypoint = e
	c.Request.Force = c.Force
	k := &Call{
		Stage1: s, Entrypoint: e, Call: c, Began: time.Now(),
		Ended: make(chan struct{}), verdict: make(chan bool, 1),
	}
	k.Args = s.Dialect.Arguments(k)
	return k, nil
}

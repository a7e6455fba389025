package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// State is a state of an app, as rkt's proposal names them. They are linear: an app that has
// exited does not run again.
type State string

const (
	// Unknown: neither the server nor a record says what became of the app.
	Unknown State = "unknown"
	// Preparing: an add has begun. If its command was killed, only rm is legal.
	Preparing State = "preparing"
	// Prepared: the app's first process waits to be started.
	Prepared State = "prepared"
	// Running: the app was started.
	Running State = "running"
	// Stopping: a stop has begun, and the app has not ended yet.
	Stopping State = "stopping"
	// Exited: the app's first process has ended, by itself or by a stop.
	Exited State = "exited"
	// Deleting: an rm has begun. Only rm is legal.
	Deleting State = "deleting"
)

// final reports whether nothing is written any more by an app in this state.
func (s State) final() bool { return s == Exited || s == Deleting || s == Unknown }

// AppStatus is the status of an app. Times are zero until they are known.
type AppStatus struct {
	Pod        string    `json:"pod"`
	Name       string    `json:"name"`
	State      State     `json:"state"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// ExitCode is the exit code, or 128 plus the number of a signal; null until the app has
	// ended. 137 without FinishedAt means that the end was not recorded.
	ExitCode *int64 `json:"exitCode"`
	PID      int    `json:"pid,omitempty"` // of the first process, while there is one
}

// PodState is a state of a local pod.
type PodState string

// The states of local pods.
const (
	PodCreating PodState = "creating" // if its command was killed, the next creation removes it
	PodRunning  PodState = "running"
	PodUnserved PodState = "unserved" // its server has ended: its apps can be stopped and removed
	PodExited   PodState = "exited"   // the pod has ended with its apps, or with the machine
	PodRemoving PodState = "removing" // as PodCreating
	// PodDamaged: its record cannot be read, for example after a power loss. It can be removed.
	PodDamaged PodState = "damaged"
)

// PodStatus is the status of a local pod.
type PodStatus struct {
	UUID       string    `json:"uuid"`
	State      PodState  `json:"state"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	Stage1     string    `json:"stage1,omitempty"` // that was asked for
	Network    string    `json:"network,omitempty"`
	Cgroup     string    `json:"cgroup,omitempty"`
	Injectable bool      `json:"injectable"`
	// EndsWithApps is set if the pod ends when all its apps have ended.
	EndsWithApps bool `json:"endsWithApps,omitempty"`
}

// PodStatus returns the status of the pod.
func (p *Pod) PodStatus(ctx context.Context) PodStatus {
	r := p.record
	st := PodStatus{UUID: p.uuid, State: PodState(r.State), CreatedAt: r.Created, Stage1: r.Stage1, Network: r.Network, Cgroup: r.Cgroup, Injectable: r.Injectable, EndsWithApps: r.EndsWithApps}
	if r.State == podReady {
		st.State = PodUnserved
		if s, err := p.server(ctx); err == nil {
			s.close()
			st.State = PodRunning
		} else if p.gone() {
			st.State = PodExited
		}
	}
	return st
}

// gone reports whether no process of the pod is left: it has no directory any more, or one of
// another boot.
func (p *Pod) gone() bool {
	node, err := view.Open(p.store.DataDir)
	if err != nil {
		return false
	}
	seen, err := node.Pod(p.uuid)
	return errdefs.IsNotFound(err) || err == nil && seen.State == view.PodAbandoned
}

// life is what the server or the pod's records say of an app.
type life struct {
	pid      int
	start    uint64 // its start time; 0 if the server has answered
	started  bool
	ended    bool
	finished time.Time
	code     int64
	unknown  bool
}

// List returns the status of all apps, in the order of their names.
func (p *Pod) List(ctx context.Context) ([]AppStatus, error) {
	names, err := p.Names()
	if err != nil {
		return nil, err
	}
	server, err := p.server(ctx)
	if err == nil {
		defer server.close()
	} else if !errors.Is(err, errNoServer) {
		return nil, err
	}
	var all []AppStatus
	for _, name := range names {
		st, err := p.app(name).status(ctx, server)
		if errdefs.IsNotFound(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}

// Status returns the status of an app.
func (p *Pod) Status(ctx context.Context, name string) (AppStatus, error) {
	server, err := p.server(ctx)
	if err == nil {
		defer server.close()
	} else if !errors.Is(err, errNoServer) {
		return AppStatus{}, err
	}
	return p.app(name).status(ctx, server)
}

// Names lists the pod's apps, sorted.
func (p *Pod) Names() ([]string, error) {
	entries, err := os.ReadDir(p.path(appsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if checkName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// status returns the app's status. s is nil if the pod's server is not running.
func (a *app) status(ctx context.Context, s *server) (AppStatus, error) {
	if err := checkName(a.name); err != nil {
		return AppStatus{}, err
	}
	r, err := a.read()
	if err != nil {
		return AppStatus{}, err
	}
	st := AppStatus{Pod: a.pod.uuid, Name: a.name, State: r.State, CreatedAt: r.Created, StartedAt: r.Started}
	if r.State == Preparing || r.State == Deleting {
		return st, nil
	}
	l, err := a.life(ctx, s)
	if err != nil {
		return st, err
	}
	st.State, st.PID = a.stateOf(r, l), l.pid
	if st.StartedAt.IsZero() && (l.started || l.ended) {
		st.StartedAt = a.startOnDisk()
	}
	if l.ended {
		st.FinishedAt, st.ExitCode, st.PID = l.finished, &l.code, 0
	}
	return st, nil
}

func (a *app) stateOf(r appRecord, l life) State {
	switch {
	case l.unknown:
		return Unknown
	case l.ended:
		return Exited
	case r.State == Stopping:
		return Stopping
	case l.started:
		return Running
	}
	return Prepared
}

// lifeNow is life with a connection of its own.
func (a *app) lifeNow(ctx context.Context) (life, error) {
	server, err := a.pod.server(ctx)
	if err == nil {
		defer server.close()
	} else if !errors.Is(err, errNoServer) {
		return life{}, err
	}
	return a.life(ctx, server)
}

// life asks the server, or reads the records if there is none.
func (a *app) life(ctx context.Context, s *server) (life, error) {
	if s == nil {
		return a.lifeOnDisk()
	}
	r, err := s.State(ctx, &task.StateRequest{ID: a.name})
	if err = native(err); gone(err) {
		return a.lifeOnDisk()
	}
	if err != nil {
		return life{}, err
	}
	l := life{pid: int(r.Pid), started: r.Status != tasktypes.Status_CREATED}
	if r.Status == tasktypes.Status_STOPPED {
		l.ended, l.finished, l.code = true, r.ExitedAt.AsTime(), int64(r.ExitStatus)
	}
	return l, nil
}

// bundleRecord has the fields of rkt.json that are read here (docs/layout.md).
type bundleRecord struct {
	Version int `json:"version"`
	Exit    *struct {
		Code int64     `json:"code"`
		At   time.Time `json:"at"`
	} `json:"exit"`
}

// lifeOnDisk reads the records that the server and the stage1 have left.
func (a *app) lifeOnDisk() (life, error) {
	var b bundleRecord
	err := readRecord(filepath.Join(a.bundle(), bundleFile), &b)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return life{unknown: true}, nil // Create was interrupted, or the pod was removed
	case errdefs.IsDataLoss(err): // it was lost with the power, and has no exit
	case err != nil:
		return life{}, err
	case b.Exit != nil: // `delete` has read it from records that it has removed
		return life{started: true, ended: true, code: b.Exit.Code, finished: b.Exit.At}, nil
	}
	seen, err := a.view()
	if err != nil {
		return life{}, err
	}
	lost := life{started: true, ended: true, code: int64(proc.KilledCode)}
	if seen == nil { // the machine was booted, and the pod was collected
		return lost, nil
	}
	// The stage1 records an exit before it reaps the process. If the process is gone, the record
	// is there or never comes.
	if q := seen.Process; seen.State == view.AppExited && seen.Exit == nil && q != nil {
		if start, err := proc.StartTime(q.PID); err == nil && start == q.StartTime {
			return life{pid: q.PID, start: q.StartTime, started: true}, nil
		}
		if seen, err = a.view(); err != nil || seen == nil {
			return lost, err
		}
	}
	switch {
	case seen.Exit != nil:
		return life{started: true, ended: true, code: int64(seen.Exit.Code), finished: seen.Exit.Time}, nil
	case seen.State == view.AppExited:
		return lost, nil
	case seen.Process == nil:
		return life{unknown: true}, nil
	}
	return life{pid: seen.Process.PID, start: seen.Process.StartTime, started: !seen.Started.IsZero()}, nil
}

// view returns what is on disk of the app in its pod, or nil if the pod or the app is not there.
func (a *app) view() (*view.App, error) {
	node, err := view.Open(a.pod.store.DataDir)
	if err != nil {
		return nil, err
	}
	p, err := node.Pod(a.pod.uuid)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.App(a.name), nil
}

// startOnDisk returns the time at which the app was started, or zero if it is not recorded.
func (a *app) startOnDisk() time.Time {
	seen, err := a.view()
	if err != nil || seen == nil {
		return time.Time{}
	}
	return seen.Started
}

// illegal returns the error for a command that is not legal in an app's state.
func (a *app) illegal(st State, what string) error {
	return fmt.Errorf("app %s of pod %s is %s: %s: %w", a.name, a.pod.uuid, st, what, errdefs.ErrFailedPrecondition)
}

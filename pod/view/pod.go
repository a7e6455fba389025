package view

import (
	"slices"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// PodState is the state of a pod.
type PodState string

// The states of pods.
const (
	// PodPreparing: a shim makes the pod, or starts its stage1.
	PodPreparing PodState = "preparing"
	// PodPrepared: the pod is complete and was not started.
	PodPrepared PodState = "prepared"
	// PodRunning: the stage1's supervisor is running. If no shim is running, Pod.Shim says
	// so: nothing serves the pod then, and it continues to run.
	PodRunning PodState = "running"
	// PodExited: the supervisor has ended.
	PodExited PodState = "exited"
	// PodDeleting: the pod's shim removes it.
	PodDeleting PodState = "deleting"
	// PodAbandoned: the process that made or removed the pod has ended, or the machine was
	// booted. A collector will remove the pod.
	PodAbandoned PodState = "abandoned"
)

// AppState is the state of an app.
type AppState string

// The states of apps.
const (
	// AppCreating: the app has no process yet.
	AppCreating AppState = "creating"
	// AppCreated: the app's process waits to be started.
	AppCreated AppState = "created"
	// AppRunning: the app's program runs.
	AppRunning AppState = "running"
	// AppPaused: every process of the app is frozen.
	AppPaused AppState = "paused"
	// AppExited: the app's first process has ended. App.Exit is nil if no record says how.
	AppExited AppState = "exited"
	// AppDeleting: the app's files are being removed.
	AppDeleting AppState = "deleting"
	// AppAbandoned: the shim has ended before the app had a process.
	AppAbandoned AppState = "abandoned"
)

// Pod is a pod as it was a moment ago.
type Pod struct {
	UUID      string    `json:"uuid"`
	State     PodState  `json:"state"`
	Dir       string    `json:"dir"`
	Created   time.Time `json:"created,omitzero"`
	Daemon    string    `json:"daemon,omitempty"` // containerd's address
	Namespace string    `json:"namespace,omitempty"`
	Sandbox   string    `json:"sandbox,omitempty"` // containerd's id of the sandbox, or of the group of containers
	// SandboxBundle is the bundle of a pod of the Sandbox service.
	SandboxBundle string `json:"sandboxBundle,omitempty"`
	Stage1        Stage1 `json:"stage1"`
	// Annotations are ours, of a pod of the Sandbox service. Those of other pods are in the
	// specs of their apps.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Shim is nil if no shim has made the pod. If it is not alive, nothing serves the pod.
	Shim       *Process `json:"shim,omitempty"`
	Supervisor *Process `json:"supervisor,omitempty"`
	Leader     int      `json:"leader,omitempty"` // the pid that `run` has reported
	Holder     *Process `json:"holder,omitempty"` // of the namespaces of a pod of the Sandbox service
	Apps       []App    `json:"apps"`
	Problems   []string `json:"problems,omitempty"` // with records of this pod

	otherBoot bool
}

// Served reports whether a shim serves the pod.
func (p *Pod) Served() bool { return p.Shim != nil && p.Shim.Alive }

// Stage1 is the image of a pod's stage1.
type Stage1 struct {
	Name    string   `json:"name,omitempty"`
	Digest  string   `json:"digest,omitempty"`
	By      string   `json:"by,omitempty"`      // the setting that has chosen it: docs/config.md
	Excused []string `json:"excused,omitempty"` // fields of specs that it may ignore
}

// Process is a recorded process.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime,omitempty"` // clock ticks since boot
	Alive     bool   `json:"alive"`
}

// App is an app of a pod.
type App struct {
	ID         string    `json:"id,omitempty"` // containerd's id of the container
	Name       string    `json:"name"`
	Generation int       `json:"generation,omitempty"`
	State      AppState  `json:"state"`
	Process    *Process  `json:"process,omitempty"` // its first process
	Created    time.Time `json:"created,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Exit       *Exit     `json:"exit,omitempty"`
	Bundle     string    `json:"bundle,omitempty"`
	// Cgroup is the record of its cgroup: cgroup.FromRecord opens it.
	Cgroup   *cgroup.Record `json:"cgroup,omitempty"`
	Recorder string         `json:"recorder,omitempty"` // who records its exit
	Options  []string       `json:"options,omitempty"`  // names of the runtime options that have arrived
	Unknown  []string       `json:"unknown,omitempty"`  // fields of config.json that are ignored
	Execs    []Exec         `json:"execs,omitempty"`    // that have ended and were not deleted
	// Debugs is the id of the app that this one debugs. containerd does not know a debug app.
	Debugs string `json:"debugs,omitempty"`

	otherBoot bool // its cgroup and its processes are gone
}

// Exit is how a process ended.
type Exit struct {
	Code   int       `json:"code"` // 128 + Signal if a signal ended it
	Signal int       `json:"signal,omitempty"`
	Time   time.Time `json:"time"`
}

// Exec is an exec that has ended.
type Exec struct {
	ID   string `json:"id"`
	Exit Exit   `json:"exit"`
}

// newPod returns a pod from its files.
func (n *Node) newPod(f *disk.PodFiles) *Pod {
	p := &Pod{
		UUID: f.UUID, Dir: f.Dir, Created: f.Made, Apps: []App{},
		Daemon: f.Key.Daemon, Namespace: f.Key.Namespace, Sandbox: f.Key.Sandbox,
		Stage1: Stage1{Name: f.Stage1.Name, Digest: f.Stage1.Digest, By: f.Stage1.By, Excused: f.Stage1.Excused},
	}
	p.otherBoot = f.Recorded && f.BootID != n.bootID
	alive := func(r disk.ProcessRecord) *Process {
		return &Process{r.PID, r.StartTime, f.BootID == n.bootID && proc.Alive(r.PID, r.StartTime)}
	}
	if f.Recorded {
		p.Shim = alive(f.Shim)
	}
	if s := f.Supervisor; s != nil {
		p.Supervisor, p.Leader = alive(disk.ProcessRecord{PID: s.PID, StartTime: s.StartTime}), s.Leader
	}
	if s := f.Sandbox; s != nil {
		p.SandboxBundle, p.Annotations = s.Bundle, s.Annotations
		if s.Holder != nil {
			p.Holder = alive(*s.Holder)
		}
	}
	p.State = stateOf(f, p)
	for _, a := range f.Apps {
		p.Apps = append(p.Apps, n.newApp(p, a, alive))
	}
	for i, a := range f.Apps {
		if a.Record.Debugs == "" {
			continue
		}
		p.Apps[i].Debugs = string(a.Record.Debugs)
		if target := p.App(string(a.Record.Debugs)); target != nil {
			p.Apps[i].Debugs = target.ID
		}
	}
	for _, err := range f.Damaged {
		p.Problems = append(p.Problems, err.Error())
	}
	return p
}

// unrecordedGrace is how long after a directory was made its maker may not yet have written
// a record to it. The collector waits as long.
const unrecordedGrace = time.Minute

func stateOf(f *disk.PodFiles, p *Pod) PodState {
	if p.otherBoot {
		return PodAbandoned
	}
	supervised := p.Supervisor != nil && p.Supervisor.Alive
	switch f.State {
	case "prepared":
		return PodPrepared
	case "embryo", "prepare":
		if p.Served() || !f.Recorded && time.Since(f.Made) < unrecordedGrace {
			return PodPreparing
		}
	case "run":
		switch {
		case supervised:
			return PodRunning
		case p.Supervisor == nil && p.Served():
			return PodPreparing
		case p.Supervisor == nil: // its shim died while it started the stage1, which may run
			return PodAbandoned
		case p.Served() || len(f.Apps) > 0 || f.Sandbox != nil:
			return PodExited
		}
	case "exited-garbage":
		if p.Served() {
			return PodDeleting
		}
	}
	return PodAbandoned
}

func (n *Node) newApp(p *Pod, f disk.AppFiles, alive func(disk.ProcessRecord) *Process) App {
	r := f.Record
	a := App{
		ID: r.ID, Name: string(f.Name), Generation: r.Generation, Bundle: r.Bundle,
		Created: f.Made, Started: f.Started, Cgroup: r.Cgroup, Recorder: r.Recorder, Options: r.Options, Unknown: r.Unknown,
		otherBoot: p.otherBoot,
	}
	if r.PID != 0 {
		a.Process = alive(disk.ProcessRecord{PID: r.PID, StartTime: r.StartTime})
	}
	if f.Exit != nil {
		a.Exit = &Exit{f.Exit.Code, f.Exit.Signal, f.Exit.Time}
	}
	for _, e := range f.Execs {
		a.Execs = append(a.Execs, Exec{e.ID, Exit{e.Exit.Code, e.Exit.Signal, e.Exit.Time}})
	}
	switch {
	case !f.Recorded:
		a.State = AppDeleting
	case a.Exit != nil:
		a.State = AppExited
	case a.Process == nil && p.Served():
		a.State = AppCreating
	case a.Process == nil:
		a.State = AppAbandoned
	case !a.Process.Alive:
		a.State = AppExited
	default:
		if a.Started.IsZero() {
			// The marker is missing if the app has not started, if a release that had none has
			// started it, or if the disk was full.
			a.Started = n.startedByJournal(p.UUID, a.Name)
		}
		switch {
		case a.Started.IsZero():
			a.State = AppCreated
		case frozen(r.Cgroup):
			a.State = AppPaused
		default:
			a.State = AppRunning
		}
	}
	return a
}

// frozen reports whether the processes of a cgroup are frozen.
func frozen(r *cgroup.Record) bool {
	if r == nil {
		return false
	}
	g, err := cgroup.FromRecord(*r)
	return err == nil && !g.Replaced() && g.Frozen()
}

// Own returns the pod's apps without debug apps.
func (p *Pod) Own() []*App {
	var own []*App
	for i := range p.Apps {
		if a := &p.Apps[i]; a.Debugs == "" {
			own = append(own, a)
		}
	}
	return own
}

// App returns the app with an id or a name, or nil.
func (p *Pod) App(name string) *App {
	for _, of := range []func(App) bool{
		func(a App) bool { return a.ID == name },
		func(a App) bool { return a.Name == name },
	} {
		if i := slices.IndexFunc(p.Apps, of); i >= 0 {
			return &p.Apps[i]
		}
	}
	return nil
}

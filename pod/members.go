package pod

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// PodConfig has the settings of a pod.
type PodConfig struct {
	Store    *disk.Store
	Key      disk.Key
	Cgroups  map[string]string // of containerd, by controller; relative cgroupsPaths need them
	Children *proc.Children
	Events   Events
	// OpenStage1 returns the stage1 of this pod. Each call must return a new one,
	// because a stage1 may keep data of the pod that it runs. It is called for the
	// first app, and again if that failed or the pod has ended since.
	OpenStage1 func(context.Context) (Stage1, error)
	// Choice, if set, returns the fields By and Excused of the pod's stage1.
	Choice func() disk.Stage1Record
	// Admit, if set, returns an error if an app with these annotations cannot be in the
	// pod.
	Admit func(annotations map[string]string) error
}

// Pod is a group of apps that share a stage1. The first app makes the pod's directory
// and starts its supervisor. The pod ends with its last app, and an app that comes
// after that begins it again, in a new directory. A pod that CreateSandbox has made
// ends with ShutdownSandbox, whether it has apps or not.
//
// All methods may be called concurrently. For an unknown app or exec they return
// errdefs.ErrNotFound. The legal states are those of the table in states.go. In other
// states a method returns errdefs.ErrFailedPrecondition and changes nothing.
type Pod struct {
	cfg PodConfig

	ooms cgroup.OOMWatches // of the apps

	mu      sync.Mutex
	apps    map[AppID]*app
	debugs  map[*DebugApp]struct{} // nil before the first one
	session *session               // the stage1 that runs, is being started or is being ended
	owner   owner
}

// app is a container in a pod: its first process, its execs, and the things that were
// made for it. The fields above mu are set before other callers can see the app, or by
// create before the app's process exists.
type app struct {
	*process
	pod    *Pod
	id     AppID
	name   disk.AppName
	config AppConfig    // without Spec when the app has been made
	ownNet bool         // it has a network namespace that is not the host's
	debugs disk.AppName // of a debug app: the target's name

	session *session
	disk    *disk.AppDir
	bundle  string      // path of the bundle that RKT_BUNDLE names
	rootfs  string      // absolute; mounted by us if config.Rootfs is not empty
	mounts  []abi.Mount // of the rootfs, if the stage1 mounts them
	places  int         // of disks that its layers take; guarded by pod.mu
	cgroup  *cgroup.Group
	oom     *cgroup.OOMWatch
	network *networkWatch

	turn turn // taken by calls that change the app
	gate gate // of execs that are being started; closed when the first process has ended

	mu    sync.Mutex
	execs map[ExecID]*execution
}

// DebugApp is an app that an operator has added to a pod in order to look at another app of
// it, the target. No client of the pod knows the debug app: it is not among the pod's apps,
// it has no events, and the pod's end does not wait for its user. It is killed and removed
// before its target is deleted and before a sandbox is stopped.
//
//	AddDebug ──► Create ──► Start ──► Wait
//	    └──────────┴──────────┴─────────┴──► End
//
// Each of Create and Start is legal once, in this order, and refused after End. All methods
// may be called concurrently.
type DebugApp struct {
	DebugFacts

	pod    *Pod
	target *app
	pinned []*os.File         // of Namespaces
	turn   turn               // taken by Create, and by End for good
	ctx    context.Context    // of Create; ended by End
	cancel context.CancelFunc // of ctx

	app *app // nil before Create; guarded by pod.mu

	end func(context.Context) error // End

	ending sync.Mutex
	ended  bool  // guarded by ending
	endErr error // guarded by ending
}

// turn is the right to call entrypoints for an app: one call at a time, as the ABI
// promises (docs/stage1-abi.md, section 2). Execs and signals do not wait for it. It is
// a lock and not part of the app's state, because an Update or a Checkpoint in progress
// changes no state.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// execution is a further process of an app.
type execution struct {
	*process
	config ExecConfig // without Process once it was started
}

// session is one run of a pod's stage1, from the making of the pod directory to its
// removal. A session that failed to start stays until the apps that have joined it have
// gone, so that nothing is removed while they use it.
type session struct {
	pod    *Pod
	owner  owner
	origin origin

	networks networks

	// Set while the session is making.
	stage1      Stage1
	dir         *disk.Dir       // unless that has failed
	starting    context.Context // of the start
	cancelStart context.CancelFunc

	// Set until the start is decided.
	sup  Supervisor
	err  error   // the reason for which there is no stage1
	undo cleanup // of a start that failed

	ending sync.Once // calls endSupervisor

	stateOf[sessionState] // its mu may be taken with pod.mu held
}

// origin is what is known of a pod when its stage1 is started: from its sandbox, or from the
// app that it begins with.
type origin struct {
	annotations map[string]string
	labels      map[string]string
	netns       string // path
	resources   []byte // linux.resources
	cgroup      string // that the client has made for the pod, below the root of every hierarchy
	// bundle and spec are the first app's, which a stage1 may refuse before it boots a VM. A sandbox has none.
	bundle string
	spec   *spec.App
}

// networks are the network namespaces that a session watches.
type networks struct {
	mu      sync.Mutex
	watched []fs.FileInfo
	calls   sync.WaitGroup  // that tell the stage1 of changes
	lasting context.Context // until end is called, after which no call begins
	end     context.CancelFunc
}

// networkWatch tells a stage1 when a network namespace has changed.
type networkWatch struct {
	session *session
	ns      fs.FileInfo
	call    func() Call
	changes *os.File
}

// sandbox owns a pod that does not end with its last app.
type sandbox struct {
	pod     *Pod
	config  SandboxConfig
	session *session

	// Set by CreateSandbox or StartSandbox.
	files   *disk.SandboxFiles
	group   *cgroup.Group
	holder  *holder
	request *abi.Sandbox // of its stage1
	network *networkWatch

	stateOf[SandboxState]
	status SandboxStatus // guarded by mu; its State is not used, because now computes it
}

// holder is the process that holds a sandbox's namespaces.
type holder struct {
	pid   int
	start uint64
}

// app returns an app that clients know. They do not know an app that is being created,
// or whose creation has failed and is being undone.
func (p *Pod) app(id AppID) (*app, error) {
	p.mu.Lock()
	a := p.apps[id]
	p.mu.Unlock()
	if a != nil {
		if s := a.status().State; s != Creating && s != Deleted {
			return a, nil
		}
	}
	return nil, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
}

// find returns an app and, if exec is not empty, that exec's process, else the app's
// first process.
func (p *Pod) find(id AppID, exec ExecID) (*app, *process, error) {
	a, err := p.app(id)
	if err != nil {
		return nil, nil, err
	}
	if exec == "" {
		return a, a.process, nil
	}
	e, err := a.exec(exec)
	if err != nil {
		return nil, nil, err
	}
	return a, e.process, nil
}

// reserve reserves an app's id.
func (p *Pod) reserve(a *app) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.apps[a.id]; ok {
		return fmt.Errorf("container %s: %w", a.id, errdefs.ErrAlreadyExists)
	}
	p.apps[a.id] = a
	return nil
}

// join makes an app a member of a session.
func (p *Pod) join(a *app, s *session, name disk.AppName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.session, a.name = s, name
}

// debugAppsLocked returns the apps of the pod's debug apps. The caller holds p.mu.
func (p *Pod) debugAppsLocked() []*app {
	var all []*app
	for d := range p.debugs {
		if d.app != nil {
			all = append(all, d.app)
		}
	}
	return all
}

// byName returns the app of a session by its name, debug apps included.
func (p *Pod) byName(s *session, name disk.AppName) *app {
	members := p.members(s)
	if i := slices.IndexFunc(members, func(a *app) bool { return a.name == name }); i >= 0 {
		return members[i]
	}
	return nil
}

// members returns the apps of a session, debug apps included.
func (p *Pod) members(s *session) []*app {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.AppendSeq(p.debugAppsLocked(), maps.Values(p.apps))
	return slices.DeleteFunc(all, func(a *app) bool { return a.session != s })
}

// all returns the pod's apps.
func (p *Pod) all() []*app {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*app, 0, len(p.apps))
	for _, a := range p.apps {
		all = append(all, a)
	}
	return all
}

// exec returns a registered exec.
func (a *app) exec(id ExecID) (*execution, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.execs[id]
	if !ok {
		return nil, fmt.Errorf("exec %s in container %s: %w", id, a.id, errdefs.ErrNotFound)
	}
	return e, nil
}

// allExecs returns the app's execs, whatever their state.
func (a *app) allExecs() []*execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.execs))
}

// spec returns the app's spec, while the app is being made.
func (a *app) spec() *specs.Spec { return &a.config.Spec.OCI }

// owns reports whether the stage1 of the app does by itself what a word names.
func (a *app) owns(o abi.Own) bool { return a.session.stage1.Owns(o) }

// call returns an entrypoint call with the fields that are the same in all calls for
// this app.
func (a *app) call(e abi.Entrypoint) Call {
	c := a.session.call(e, a.name)
	c.Request.Container = string(a.id)
	c.Request.Bundle = a.bundle
	c.Request.Debug = a.config.Debug
	return c
}

// running reports whether the exec has a process, or is about to get one.
func (e *execution) running() bool {
	return e.in(Starting, Running)
}

// step moves the session. It reports whether the table allows the step. If several
// callers end a session, the step is legal for only one of them.
func (s *session) step(t sessionStep) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, ok := sessionTransitions[s.state][t]
	if ok {
		s.moveLocked(next)
	}
	return ok
}

// fail records that there will be no stage1, and the reason.
func (s *session) fail(err error) {
	s.err = err
	s.step(sessionFail)
}

// wait waits until the stage1 runs, or returns the reason for which it does not.
func (s *session) wait(ctx context.Context) error {
	if _, err := s.until(ctx, sessionState.startDecided); err != nil {
		return fmt.Errorf("wait for the stage1 to start: %w", err)
	}
	return s.err
}

// alive reports whether the supervisor is running.
func (s *session) alive() bool { return s.in(sessionUp, sessionStopping) }

// call returns an entrypoint call with the fields that are the same in all calls of
// this session.
func (s *session) call(e abi.Entrypoint, app disk.AppName) Call {
	return Call{
		Dir:     s.dir.Path(),
		Leader:  s.sup.Leader.PID,
		Request: abi.Request{Entrypoint: e, Pod: s.dir.UUID(), App: string(app)},
	}
}

// step moves the sandbox and returns the error of a start that the table refuses.
func (sb *sandbox) step(t sandboxStep) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.stepLocked(t)
}

func (sb *sandbox) stepLocked(t sandboxStep) error {
	next, ok := sandboxTransitions[sb.state][t]
	if !ok {
		return fmt.Errorf("cannot start sandbox %s, which is %s: %w", sb.config.ID, sb.state.shown(), errdefs.ErrFailedPrecondition)
	}
	sb.moveLocked(next)
	return nil
}

package shim

import (
	"fmt"
	"sync"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// streams are the paths and URIs of a process's streams, as the client gave
// them.
type streams struct {
	stdin, stdout, stderr string
	terminal              bool
}

// process has the facts about an app's first process, or about an exec, that the pod does
// not store: fields of State's answer and of events.
type process struct {
	streams
	stdio *stdio // nil while it is being opened
	ready bool   // the pod knows it
}

// app is the service's memory of an app.
type app struct {
	process
	id     pod.AppID
	bundle string
	rootfs []*types.Mount // until TaskCreate was published
	execs  map[pod.ExecID]*process

	checkpoint string // from which the app was made
}

// registry knows the ids that are in use. A request takes its id before it does anything
// else, so that two requests for one id never reach the pod.
type registry struct {
	mu     sync.Mutex
	apps   map[pod.AppID]*app
	closed bool // no app is accepted any more

	sandbox string // id of the pod's sandbox, if it is one
}

// take registers an app that is being created.
func (r *registry) take(a *app) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("container %s: the shim is shutting down: %w", a.id, errdefs.ErrUnavailable)
	}
	if _, ok := r.apps[a.id]; ok {
		return fmt.Errorf("container %s: %w", a.id, errdefs.ErrAlreadyExists)
	}
	if r.apps == nil {
		r.apps = map[pod.AppID]*app{}
	}
	r.apps[a.id] = a
	return nil
}

// known marks an app or exec as known to the pod.
func (r *registry) known(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.ready = true
}

// drop forgets an app whose creation failed.
func (r *registry) drop(a *app) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.apps, a.id)
}

// lookup returns the process that the pod knows by these ids, or nil.
func (r *registry) lookup(id pod.AppID, exec pod.ExecID) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.apps[id]
	if !ok {
		return nil
	}
	p := &a.process
	if exec != "" {
		p = a.execs[exec]
	}
	if p == nil || !p.ready {
		return nil
	}
	return p
}

// deleted forgets a process that lookup has returned and that the pod has then deleted.
// If the id belongs to a new process by now, that one stays: of two concurrent Deletes the
// second may get here after the client has used the answer of the first to make another
// process of that id.
func (r *registry) deleted(id pod.AppID, exec pod.ExecID, p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.apps[id]
	switch {
	case !ok || p == nil:
	case exec == "" && p == &a.process:
		delete(r.apps, id)
	case exec != "" && p == a.execs[exec]:
		delete(a.execs, exec)
	}
}

// app returns a registered app.
func (r *registry) app(id pod.AppID) (*app, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.appLocked(id)
}

func (r *registry) appLocked(id pod.AppID) (*app, error) {
	a, ok := r.apps[id]
	if !ok {
		return nil, fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	return a, nil
}

// takeExec registers an exec that is being added.
func (r *registry) takeExec(id pod.AppID, exec pod.ExecID, st streams) (*process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, err := r.appLocked(id)
	if err != nil {
		return nil, err
	}
	if _, ok := a.execs[exec]; ok {
		return nil, fmt.Errorf("exec %s in container %s: %w", exec, id, errdefs.ErrAlreadyExists)
	}
	if a.execs == nil {
		a.execs = map[pod.ExecID]*process{}
	}
	p := &process{streams: st}
	a.execs[exec] = p
	return p, nil
}

// dropExec forgets an exec whose adding failed.
func (r *registry) dropExec(id pod.AppID, exec pod.ExecID, p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, ok := r.apps[id]; ok && a.execs[exec] == p {
		delete(a.execs, exec)
	}
}

// setStdio records the streams that were opened for a process.
func (r *registry) setStdio(p *process, s *stdio) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.stdio = s
}

// process returns the bundle of an app, and a copy of the record of one of its processes.
func (r *registry) process(id pod.AppID, exec pod.ExecID) (bundle string, p process, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, err := r.appLocked(id)
	if err != nil {
		return "", process{}, err
	}
	if exec == "" {
		return a.bundle, a.process, nil
	}
	e, ok := a.execs[exec]
	if !ok {
		return "", process{}, fmt.Errorf("exec %s in container %s: %w", exec, id, errdefs.ErrNotFound)
	}
	return a.bundle, *e, nil
}

// takeRootfs returns the mounts of an app's root and forgets them.
func (r *registry) takeRootfs(a *app) []*types.Mount {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := a.rootfs
	a.rootfs = nil
	return m
}

// close makes the registry refuse further apps.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// closeIfEmpty closes the registry if it has neither apps nor a sandbox. If except is
// set, the app id does not count, unless a new app of that id is being created.
func (r *registry) closeIfEmpty(id pod.AppID, except bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandbox != "" {
		return false
	}
	for _, a := range r.apps {
		if !except || a.id != id || !a.ready {
			return false
		}
	}
	r.closed = true
	return true
}

// openSandbox registers the pod's sandbox.
func (r *registry) openSandbox(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("sandbox %s: the shim is shutting down: %w", id, errdefs.ErrUnavailable)
	}
	if r.sandbox != "" {
		return fmt.Errorf("sandbox %s: this shim has sandbox %s: %w", id, r.sandbox, errdefs.ErrAlreadyExists)
	}
	r.sandbox = id
	return nil
}

// closeSandbox forgets the sandbox.
func (r *registry) closeSandbox() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandbox = ""
}

// isSandbox reports whether an id is the sandbox's.
func (r *registry) isSandbox(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return id != "" && r.sandbox == id
}

// unused reports whether there is neither an app nor a sandbox.
func (r *registry) unused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.apps) == 0 && r.sandbox == ""
}

package shim

import (
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// registry has the ids of apps and execs that are being created, which the pod does not
// know yet, and the id of the sandbox. A request takes its id before it does anything else,
// so that two requests for one id never reach the pod.
type registry struct {
	mu      sync.Mutex
	taken   map[name]bool
	changes int  // how often an app's id was taken or given back
	closed  bool // no app is accepted any more

	sandbox string // empty if the pod is no sandbox
}

// name is the id of an app, or of an exec if exec is set.
type name struct {
	app  pod.AppID
	exec pod.ExecID
}

func (n name) String() string {
	if n.exec != "" {
		return fmt.Sprintf("exec %s in container %s", n.exec, n.app)
	}
	return fmt.Sprintf("container %s", n.app)
}

// take takes the id of an app or exec that is being created. The caller gives it back when
// the pod knows the id, or when the creation has failed.
func (r *registry) take(n name) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && n.exec == "" {
		return fmt.Errorf("%s: the shim is shutting down: %w", n, errdefs.ErrUnavailable)
	}
	if r.taken[n] {
		return fmt.Errorf("%s: %w", n, errdefs.ErrAlreadyExists)
	}
	if r.taken == nil {
		r.taken = map[name]bool{}
	}
	r.taken[n] = true
	r.changeLocked(n)
	return nil
}

// giveBack forgets an id.
func (r *registry) giveBack(n name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, n)
	r.changeLocked(n)
}

func (r *registry) changeLocked(n name) {
	if n.exec == "" {
		r.changes++
	}
}

// seen returns the number of changes, which the caller passes to closeIfEmpty.
func (r *registry) seen() (changes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

// closeIfEmpty makes the registry refuse further apps, unless an app is being created or
// there is a sandbox. The caller calls the method seen, checks that the pod has no app,
// and passes the result of seen to closeIfEmpty. If the creation of an app has begun or
// ended since then, again is true, and the caller repeats these steps.
func (r *registry) closeIfEmpty(seen int) (closed, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sandbox != "" {
		return false, false
	}
	return r.closeIfUnchangedLocked(seen)
}

// closeIfUnchanged is closeIfEmpty for a pod that may be a sandbox. The caller checks, in place of that the
// pod has no app, that each app has ended.
func (r *registry) closeIfUnchanged(seen int) (closed, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closeIfUnchangedLocked(seen)
}

func (r *registry) closeIfUnchangedLocked(seen int) (closed, again bool) {
	if r.createsLocked() {
		return false, false
	}
	if r.changes != seen {
		return false, true
	}
	r.closed = true
	return true, false
}

// unused reports whether no app is being created and there is no sandbox.
func (r *registry) unused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sandbox == "" && !r.createsLocked()
}

// createsLocked reports whether an app is being created.
func (r *registry) createsLocked() bool {
	for n := range r.taken {
		if n.exec == "" {
			return true
		}
	}
	return false
}

// close makes the registry refuse further apps.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
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

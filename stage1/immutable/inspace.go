package immutable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// InSpace is a stage1 whose pods have mount namespaces of their own, so that their mounts
// are not visible in containerd's. It is used for all stage1s of the rkt ABI and for all
// immutable ones. A pod's mount namespace is called its space.
type InSpace struct {
	*stage1.Stage1
	// space is set while the pod is attached.
	space atomic.Pointer[space]
	// Show makes the image visible in a pod directory. It is called in the pod's space.
	Show func(dir string) error
	// Guard, if set, protects stage 0 from what programs in the pod have written. It is called in a copy of the pod's
	// space, which stage 0 then uses for everything but `run` and `enter`. Mounts propagate in both directions, but
	// later changes of their flags do not: so `enter`, which leads into the app, is executed where `run` is.
	Guard func(dir string) error
	// unguarded is the space of `run`, if space is a copy.
	unguarded atomic.Pointer[space]
}

// NewInSpace returns a stage1 that executes its entrypoints in the pod's space.
func NewInSpace(s *stage1.Stage1) *InSpace {
	in := &InSpace{Stage1: s}
	in.Show = s.MakeVisible
	s.Inside = func(e abi.Entrypoint, f func() error) error {
		if runs := in.unguarded.Load(); runs != nil && e == abi.Enter {
			return runs.do(f)
		}
		return in.space.Load().do(f)
	}
	return in
}

// Attach makes the pod's space, and makes the image's tree visible there. If it fails,
// neither remains.
func (s *InSpace) Attach(dir string) error {
	if err := s.attach(dir); err != nil {
		return fmt.Errorf("attach stage1 %s to pod %s: %w", s.Name(), filepath.Base(dir), err)
	}
	return nil
}

func (s *InSpace) attach(dir string) error {
	sp, err := newSpace()
	if err != nil {
		return err
	}
	if err = sp.do(func() error { return s.Show(dir) }); err != nil {
		sp.close()
		return err
	}
	s.space.Swap(sp).close()
	return nil
}

// Detach releases the space. The kernel removes it when the last process in it ends.
func (s *InSpace) Detach(dir string) error {
	s.unguarded.Swap(nil).close()
	s.space.Swap(nil).close()
	return s.Stage1.Detach(dir)
}

// guard replaces the pod's space, in which `run` was started, by a guarded copy.
func (s *InSpace) guard(dir string) error {
	if s.Guard == nil {
		return nil
	}
	sp, err := s.space.Load().copy(func() error { return s.Guard(dir) })
	if err != nil {
		return err
	}
	s.unguarded.Swap(s.space.Swap(sp)).close()
	return nil
}

// find sets the pod's space in a process that has not attached the pod, such as `delete`
// after the death of the shim. This is the space of the pod's supervisor. If no supervisor
// runs, find makes a new space for gc and returns an error for other entrypoints.
//
// The pid in the pod's directory may be that of a program in the pod, whose mount namespace can have the container's
// root. find does not use such a namespace, because there a container can make files at the host's paths.
func (s *InSpace) find(c pod.Call) error {
	if s.space.Load() != nil {
		return nil
	}
	pid := SupervisorOf(c.Dir)
	if pid == 0 {
		pid = c.Leader
	}
	if pid > 0 {
		if err := s.join(pid, c); err == nil {
			return nil
		}
	}
	if c.Request.Entrypoint != abi.GC {
		return fmt.Errorf("stage1 %s: %s: the pod's processes have gone, and its mounts with them: %w", s.Name(), c.Request.Entrypoint, errdefs.ErrNotFound)
	}
	if err := s.Attach(c.Dir); err != nil {
		return err
	}
	return s.guard(c.Dir)
}

// join makes the space of a process the pod's, if the entrypoint of a call is visible there.
func (s *InSpace) join(pid int, c pod.Call) error {
	sp, err := spaceOf(pid, c.Dir)
	if err != nil {
		return err
	}
	s.space.Store(sp)
	if err = s.guard(c.Dir); err == nil {
		err = s.Within(func() error { return s.there(c) })
	}
	if err != nil {
		s.space.Swap(nil).close()
	}
	return err
}

// there returns an error if the entrypoint of a call is not visible to this thread.
func (s *InSpace) there(c pod.Call) error {
	_, err := os.Lstat(s.EntrypointIn(c.Dir, c.Request.Entrypoint))
	return err
}

// Reach executes an entrypoint in the pod's space.
func (s *InSpace) Reach(c pod.Call, execute func() error) error {
	if !s.Has(c.Request.Entrypoint) {
		return execute() // returns the error for a missing entrypoint
	}
	if err := s.find(c); err != nil {
		return err
	}
	return execute()
}

// Marks are empty files beside an app's status. rkt's tools expect them.
const (
	Created = "created"
	Started = "started"
)

// Mark returns the path of an app's mark in a pod's tree.
func Mark(app, what string) string {
	return filepath.Join(stage1.RktInTree, "status", app+"-"+what)
}

// MarkStarted removes the status of an earlier run of the app and writes the mark of its
// start, as rkt did.
func MarkStarted(dir, app string) error {
	return stage1.InTree(dir, func(tree *os.Root) error {
		for _, old := range []string{Mark(app, Started), filepath.Join(stage1.RktInTree, "status", app)} {
			if err := tree.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return stage1.WriteInTree(tree, Mark(app, Started), nil, 0o644)
	})
}

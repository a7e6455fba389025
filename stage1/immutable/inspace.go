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

// InSpace is a stage1 whose pods have mount namespaces of their own, so that none of their mounts
// is seen where containerd is: those of the rkt ABI, and all immutable ones.
type InSpace struct {
	*stage1.Stage1
	// space is set while the pod is attached.
	space atomic.Pointer[space]
	// Show makes the image visible in a pod directory. It is called in the pod's space.
	Show func(dir string) error
}

// NewInSpace makes a stage1 execute its entrypoints in the pod's space.
func NewInSpace(s *stage1.Stage1) *InSpace {
	in := &InSpace{Stage1: s}
	in.Show = s.MakeVisible
	s.Inside = func(f func() error) error { return in.space.Load().do(f) }
	return in
}

// Attach makes the pod's space, and the image's tree visible there. On failure it leaves neither.
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

// Detach gives the space up. The kernel removes it with the last process in it.
func (s *InSpace) Detach(dir string) error {
	s.space.Swap(nil).close()
	return s.Stage1.Detach(dir)
}

// find sets the pod's space in a process that has not attached the pod, such as `delete` after
// the death of the shim. It is the space of the pod's supervisor; without one, gc gets a new
// space.
func (s *InSpace) find(c pod.Call) error {
	if s.space.Load() != nil {
		return nil
	}
	pid := SupervisorOf(c.Dir)
	if pid == 0 {
		pid = c.Leader
	}
	if pid > 0 {
		sp, err := spaceOf(pid)
		if err == nil && sp != nil && sp.do(func() error { return s.there(c) }) == nil {
			s.space.Store(sp)
			return nil
		}
		sp.close()
	}
	if c.Request.Entrypoint != abi.GC {
		return fmt.Errorf("stage1 %s: %s: the pod's processes have gone, and its mounts with them: %w", s.Name(), c.Request.Entrypoint, errdefs.ErrNotFound)
	}
	return s.Attach(c.Dir)
}

// there returns an error if the entrypoint of a call is not visible here.
func (s *InSpace) there(c pod.Call) error {
	_, err := os.Lstat(s.EntrypointIn(c.Dir, c.Request.Entrypoint))
	return err
}

// Reach executes an entrypoint in the pod's space.
func (s *InSpace) Reach(c pod.Call, execute func() error) error {
	if !s.Has(c.Request.Entrypoint) {
		return execute() // returns that error
	}
	if err := s.find(c); err != nil {
		return err
	}
	return execute()
}

// Marks are empty files beside an app's status, as rkt's tools expect them.
const (
	Created = "created"
	Started = "started"
)

// Mark returns the path of an app's mark in a pod's tree.
func Mark(app, what string) string {
	return filepath.Join(stage1.RktInTree, "status", app+"-"+what)
}

// MarkStarted removes the record of an app's earlier exit and writes the mark of its start, as
// rkt did.
func MarkStarted(dir, app string) error {
	return stage1.InTree(dir, func(tree *os.Root) error {
		for _, old := range []string{Mark(app, Started), filepath.Join(stage1.RktInTree, "status", app)} {
			if err := tree.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return tree.WriteFile(Mark(app, Started), nil, 0o644)
	})
}

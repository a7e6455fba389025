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

// InSpace is a stage1 whose pods have a mount namespace of their own: those of
// rkt's versions, and all that are immutable. Nothing of theirs is mounted where
// containerd is.
type InSpace struct {
	*stage1.Stage1
	// space is set while the pod is attached.
	space atomic.Pointer[space]
	// Show makes the image visible in a pod directory. It is called in the pod's space.
	Show func(dir string) error
}

// NewInSpace has a stage1 execute its entrypoints in a space of the pod's.
func NewInSpace(s *stage1.Stage1) *InSpace {
	in := &InSpace{Stage1: s}
	in.Show = s.MakeVisible
	s.Enclose = func(f func() error) error { return in.space.Load().do(f) }
	return in
}

// Attach makes the pod's space, and the image's tree visible there. On failure
// nothing of either is left.
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

// Detach gives the space up. It goes with the last process in it.
func (s *InSpace) Detach(dir string) error {
	s.space.Swap(nil).close()
	return s.Stage1.Detach(dir)
}

// find makes sure of the pod's space in a process that has not attached the pod:
// `delete`, whose shim is dead. While the supervisor lives it is that one's; for gc
// of a pod without one it is made anew.
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

// there reports whether the entrypoint of a call can be seen from here.
func (s *InSpace) there(c pod.Call) error {
	_, err := os.Lstat(s.EntrypointIn(c.Dir, c.Request.Entrypoint))
	return err
}

// Reach executes an entrypoint in the pod's space.
func (s *InSpace) Reach(c pod.Call, execute func() error) error {
	if !s.Has(c.Request.Entrypoint) {
		return execute() // says so
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

// Mark returns where a mark of an app is in a pod's tree.
func Mark(app, what string) string {
	return filepath.Join(stage1.RktInTree, "status", app+"-"+what)
}

// MarkStarted is what rkt did before each start of an app: an earlier exit is gone.
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

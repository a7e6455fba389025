package pod

import (
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// delegate makes the container's user the owner of the container's cgroup, if the spec
// asks for that. The process must be in the cgroup before: a process that has joined a
// user namespace has lost the right to enter a cgroup that belongs to another user than
// root.
func (a *app) delegate() error {
	uid, ok := cgroup.Owner(a.spec())
	if !ok || a.owns(abi.OwnProcesses) {
		return nil
	}
	if err := a.cgroup.Delegate(uid); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	return nil
}

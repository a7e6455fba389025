package pod

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// delegate makes the container's user the owner of the container's cgroup, if the spec
// asks for that. The process must be in the cgroup before: a process that has joined a
// user namespace has lost the right to enter a cgroup that belongs to another user than
// root.
func (a *app) delegate() error {
	uid, ok := cgroupOwner(a.spec())
	if !ok || a.owns(abi.OwnProcesses) {
		return nil
	}
	if err := a.cgroup.Delegate(uid); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	return nil
}

// cgroupOwner reports whether a container owns its cgroup, and returns the user of the
// host to whom the cgroup then belongs: the one that the container's program runs as.
// The rule is that of the runtime-spec: a container owns its cgroup if it has a cgroup
// namespace of its own, in which its cgroup is the root, and a cgroup mount to which it
// may write.
func cgroupOwner(s *specs.Spec) (uid int, ok bool) {
	if s.Linux == nil || s.Process == nil {
		return 0, false
	}
	path, own := spec.Namespace(s, specs.CgroupNamespace)
	if !own || path != "" || !slices.ContainsFunc(s.Mounts, isWritableCgroup) {
		return 0, false
	}
	return hostUser(s.Linux, s.Process.User.UID)
}

func isWritableCgroup(m specs.Mount) bool {
	return (m.Type == "cgroup" || m.Type == "cgroup2") && !slices.Contains(m.Options, "ro")
}

// hostUser returns the host's number of a container's user. It returns false if the
// user is not mapped.
func hostUser(l *specs.Linux, uid uint32) (int, bool) {
	if len(l.UIDMappings) == 0 {
		return int(uid), true
	}
	for _, m := range l.UIDMappings {
		if uid >= m.ContainerID && uid-m.ContainerID < m.Size {
			return int(m.HostID + uid - m.ContainerID), true
		}
	}
	return 0, false
}

package pod

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// delegate hands the container its cgroup, if it is to have it. The process is inside
// by then: who joins a user namespace beforehand has lost the right to enter the cgroup
// of another than root.
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

// cgroupOwner reports whether a container's cgroup is to be handed over to it, as the
// runtime-spec has it, and to which user of the host: the one that its program runs
// as. So it is with a container that sees its cgroup as the root, through a cgroup
// namespace of its own, and may write to it.
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

// hostUser is who a user of a container is on the host, if anybody.
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

package pod

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// cgroupOwner tells whether a container's cgroup is to be handed over to it, as the
// runtime-spec has it, and to which user of the host: the one that its program runs
// as. So it is with a container that sees its cgroup as the root, through a cgroup
// namespace of its own, and may write to it.
func cgroupOwner(s *specs.Spec) (uid int, ok bool) {
	if s.Linux == nil || s.Process == nil {
		return 0, false
	}
	own := slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
		return n.Type == specs.CgroupNamespace && n.Path == ""
	})
	if !own || !slices.ContainsFunc(s.Mounts, isWritableCgroup) {
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

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// delegatedFiles lists the files of a cgroup that are given to the user to whom the cgroup
// is delegated.
const delegatedFiles = "/sys/kernel/cgroup/delegate"

// Delegate gives the cgroup to a user of the host. The user may then make cgroups below it
// and move its processes among them, but cannot change its limits. On version 1 Delegate
// does nothing, because a version 1 cgroup cannot be delegated safely.
func (g *Group) Delegate(uid int) error {
	if g.record.Version != 2 {
		return nil
	}
	list, err := os.ReadFile(delegatedFiles)
	if err != nil {
		return fmt.Errorf("cgroup %s: which files to delegate: %w", g.Path(), err)
	}
	const sameGroup = -1
	dir := g.record.Dirs[""]
	err = os.Lchown(dir, uid, sameGroup)
	for name := range strings.FieldsSeq(string(list)) {
		// The files of controllers that the cgroup does not have do not exist.
		if e := os.Lchown(filepath.Join(dir, name), uid, sameGroup); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("delegate cgroup %s to user %d: %w", g.Path(), uid, err)
	}
	return nil
}

// Owner reports whether a container owns its cgroup, and returns the user, outside the container, to
// whom the cgroup then belongs: the one that the container's program runs as.
// The rule is that of the runtime-spec: a container owns its cgroup if it has a cgroup
// namespace of its own, in which its cgroup is the root, and a cgroup mount to which it
// may write.
func Owner(s *specs.Spec) (uid int, ok bool) {
	if s.Linux == nil || s.Process == nil {
		return 0, false
	}
	own := slices.ContainsFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
		return n.Type == specs.CgroupNamespace && n.Path == ""
	})
	if !own || !slices.ContainsFunc(s.Mounts, isWritable) {
		return 0, false
	}
	return outsideUser(s.Linux, s.Process.User.UID)
}

func isWritable(m specs.Mount) bool {
	return (m.Type == "cgroup" || m.Type == "cgroup2") && !abi.ReadOnly(m.Options)
}

// outsideUser returns the number that a container's user has outside the container. It returns false if the
// user is not mapped.
func outsideUser(l *specs.Linux, uid uint32) (int, bool) {
	if len(l.UIDMappings) == 0 {
		joins := slices.ContainsFunc(l.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.UserNamespace })
		return int(uid), !joins // whom the namespace maps is not known here
	}
	for _, m := range l.UIDMappings {
		if uid >= m.ContainerID && uid-m.ContainerID < m.Size {
			return int(m.HostID + uid - m.ContainerID), true
		}
	}
	return 0, false
}

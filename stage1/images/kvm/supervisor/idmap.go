package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// idMap are the mappings of an id-mapped bind. The host maps the ids, because virtiofs has no id-mapped mounts:
// in the machine, the files have the owners that they have in the host's mount.
type idMap struct {
	uids, gids []specs.LinuxIDMapping
	below      bool // also of the mounts below
}

// idMapOf returns the mappings of a mount or, if it has only the option, those of its app. It removes both
// from the mount. It returns nil if the mount has neither.
func idMapOf(m *specs.Mount, l *specs.Linux) (*idMap, error) {
	is := func(option string) bool { return option == "idmap" || option == "ridmap" }
	option := slices.ContainsFunc(m.Options, is)
	if !option && len(m.UIDMappings) == 0 && len(m.GIDMappings) == 0 {
		return nil, nil
	}
	i := &idMap{m.UIDMappings, m.GIDMappings, slices.Contains(m.Options, "ridmap")}
	if len(i.uids) == 0 && len(i.gids) == 0 {
		i.uids, i.gids = l.UIDMappings, l.GIDMappings
	}
	if len(i.uids) == 0 || len(i.gids) == 0 {
		return nil, errors.New("an id-mapped mount needs mappings of users and groups, its own or the app's")
	}
	m.Options, m.UIDMappings, m.GIDMappings = slices.DeleteFunc(m.Options, is), nil, nil
	return i, nil
}

// apply maps the ids of a detached mount.
func (i *idMap) apply(tree *os.File) error {
	user, err := proc.UserNamespace(sysMappings(i.uids), sysMappings(i.gids))
	if err != nil {
		return err
	}
	defer user.Close()
	flags := uint(unix.AT_EMPTY_PATH)
	if i.below {
		flags |= unix.AT_RECURSIVE
	}
	err = proc.Control(tree, func(fd int) error {
		return unix.MountSetattr(fd, "", flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(user.Fd())})
	})
	if err != nil {
		return fmt.Errorf("map ids (the filesystem may not be able to): %w", err)
	}
	return nil
}

func sysMappings(from []specs.LinuxIDMapping) (to []syscall.SysProcIDMap) {
	for _, m := range from {
		to = append(to, syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)})
	}
	return to
}

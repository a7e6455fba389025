package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// idMap are the mappings of an id-mapped bind. The host maps the ids, because virtiofs has no id-mapped mounts:
// in the machine, the files have the owners that they have in the host's mount.
type idMap struct {
	channel.Mappings
	below bool // also of the mounts below
}

// idMapOf returns the mappings of a mount or, if it has only the option, those of its app. It removes both
// from the mount. It returns nil if the mount has neither.
func idMapOf(m *specs.Mount, l *specs.Linux) (*idMap, error) {
	is := func(option string) bool { return option == "idmap" || option == "ridmap" }
	option := slices.ContainsFunc(m.Options, is)
	if !option && len(m.UIDMappings) == 0 && len(m.GIDMappings) == 0 {
		return nil, nil
	}
	i := &idMap{mappings(m.UIDMappings, m.GIDMappings), slices.Contains(m.Options, "ridmap")}
	if len(i.UIDs) == 0 && len(i.GIDs) == 0 {
		i.Mappings = mappings(l.UIDMappings, l.GIDMappings)
	}
	if len(i.UIDs) == 0 || len(i.GIDs) == 0 {
		return nil, errors.New("an id-mapped mount needs mappings of users and groups, its own or the app's")
	}
	m.Options, m.UIDMappings, m.GIDMappings = slices.DeleteFunc(m.Options, is), nil, nil
	return i, nil
}

// apply maps the ids of a detached mount.
func (i *idMap) apply(tree *os.File) error {
	user, err := proc.UserNamespace(i.System())
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

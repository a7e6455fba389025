package container

import (
	"fmt"
	"os"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// openTree makes a detached copy of the mount at path, or of the part of it below path.
// Mounts of the host's files are made in two steps: the supervisor makes a copy, by openTree or a
// proc.MountCopier, and the app's process attaches it. So the app's user namespace need not have access
// to the source.
func openTree(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Unreadable returns a program, opened with O_PATH, in a detached mount in which the
// program's owner is an id that no user namespace maps. If the program's mode lets only the
// owner read it, no user can read it.
func Unreadable(program *os.File) (*os.File, error) {
	fd, err := unix.OpenTree(int(program.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("copy the mount of %s: %w", program.Name(), err)
	}
	f := os.NewFile(uintptr(fd), program.Name())
	others := []specs.LinuxIDMapping{{ContainerID: 1, HostID: 1, Size: 1}} // maps any id except the owner's
	ns, err := userNamespace(others, others)
	if err == nil {
		err = setAttr(fd, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())})
		ns.Close()
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("map the ids of a mount of %s: %w", program.Name(), err)
	}
	return f, nil
}

// setAttr changes the mount to which a descriptor refers.
func setAttr(fd int, recursive bool, attr unix.MountAttr) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.MountSetattr(fd, "", flags, &attr)
}

// attach mounts a detached tree on the file or directory target. The tree has a file of a mount namespace only if
// that was mounted after a proc.MountCopier has looked, or by a process in a mount namespace that the app joins.
func attach(tree, target int) error {
	err := unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err == unix.ELOOP {
		return fmt.Errorf("%w: the file of a mount namespace is mounted below it", err)
	}
	return err
}

// userNamespace makes a user namespace with these mappings, for id-mapped mounts.
func userNamespace(uids, gids []specs.LinuxIDMapping) (*os.File, error) {
	return proc.UserNamespace(sysMappings(uids), sysMappings(gids))
}

func sysMappings(m []specs.LinuxIDMapping) []syscall.SysProcIDMap {
	maps := make([]syscall.SysProcIDMap, len(m))
	for i, e := range m {
		maps[i] = syscall.SysProcIDMap{ContainerID: int(e.ContainerID), HostID: int(e.HostID), Size: int(e.Size)}
	}
	return maps
}

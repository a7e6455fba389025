// Package mount mounts directories in a pod's directory, without propagation, also on kernels
// without the newer system calls for mounts. It does not know which directories a pod has.
package mount

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReadOnly mounts a directory on another, read-only and privately.
func ReadOnly(from, to string) error {
	fd, err := clone(from)
	if isMissing(err) {
		return bindReadOnly(from, to)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	if isMissing(err) {
		return bindReadOnly(from, to)
	}
	if err != nil {
		return fmt.Errorf("make a mount of %s read-only: %w", from, err)
	}
	return Move(fd, to)
}

// bindReadOnly is ReadOnly for Linux before 5.12.
func bindReadOnly(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	if err := makePrivate(to); err != nil {
		return err
	}
	// Keep the flags of the existing mount, because in a mount namespace of
	// another user namespace the kernel refuses to clear them.
	var st unix.Statfs_t
	if err := unix.Statfs(to, &st); err != nil {
		return fmt.Errorf("flags of the mount %s: %w", to, err)
	}
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME
	flags := uintptr(st.Flags)&kept | unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY
	if err := unix.Mount("", to, "", flags, ""); err != nil {
		return fmt.Errorf("make the mount %s read-only: %w", to, err)
	}
	return nil
}

// Open returns a copy of the mount that a directory is on, with that directory
// as its root. If open_tree(2) is missing, it returns the directory itself. Move accepts both.
func Open(dir string) (int, error) {
	fd, err := clone(dir)
	if !isMissing(err) {
		return fd, err
	}
	fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

func clone(dir string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if errors.Is(err, unix.EINVAL) {
		return -1, fmt.Errorf("%s cannot be mounted elsewhere, because it is on an unbindable mount: "+
			"make that mount private (mount --make-private), or name a data directory on another one (RKT_DATA_DIR): %w", dir, err)
	}
	if err != nil {
		return -1, fmt.Errorf("open %s to mount it: %w", dir, err)
	}
	return fd, nil
}

// Move mounts the result of Open, without propagation.
func Move(fd int, to string) error {
	err := unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if isMissing(err) || errors.Is(err, unix.EINVAL) { // EINVAL: it is a directory
		err = unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), to, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("mount on %s: %w", to, err)
	}
	return makePrivate(to)
}

// makePrivate prevents the propagation of a mount, and of mounts below it. It can
// only do so when the mount is in its place: / is a shared mount on most hosts,
// and a new mount below a shared one becomes shared when it is attached.
func makePrivate(mount string) error {
	if err := unix.Mount("", mount, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mount %s private: %w", mount, err)
	}
	return nil
}

// isMissing reports whether the kernel lacks a system call, or a seccomp filter denies it. If EPERM
// is the kernel's, the older call returns it, too.
func isMissing(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

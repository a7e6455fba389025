package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// amongLockedMounts calls f on a thread that has the mounts of this process as a process in a user
// namespace has them: the flags ro, nosuid, nodev, noexec and those of atime are locked, and so is a mount to
// the one below it (mount_namespaces(7)). The bind mounts that f makes keep these locks, so that
// neither this process nor the app can undo how the host has mounted their sources.
//
// The kernel sets the locks in a copy of a mount namespace that belongs to another user namespace.
// The app's own one would do, but does not exist yet.
func amongLockedMounts(f func() error) error {
	mounts, root, err := lockedMounts()
	if err != nil {
		return fmt.Errorf("copy the mounts for a user namespace: %w", proc.ExplainUntraceable(err))
	}
	defer mounts.Close()
	defer root.Close()
	return proc.OnThread(func() error {
		err := inOrder(
			func() error { return unix.Unshare(unix.CLONE_FS) },
			func() error { return unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS) },
			func() error { return unix.Fchdir(int(root.Fd())) },
			func() error { return unix.Chroot(".") }, // this process's root may not be that of its mount namespace
		)
		if err != nil {
			return fmt.Errorf("enter the mounts for a user namespace: %w", err)
		}
		return f()
	})
}

// lockedMounts returns a copy of this process's mount namespace that belongs to another user
// namespace, and this process's root in it. No process is in it.
func lockedMounts() (mounts, root *os.File, err error) {
	errOpened := errors.New("the namespace is open")          // gives the process up
	one := []fork.IDMapping{{Inside: 1, Outside: 1, Size: 1}} // the kernel accepts no empty map
	_, err = fork.Start(context.Background(), &fork.Process{
		Path: "/", New: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UIDMappings: one, GIDMappings: one,
		Born: func(pid int) (err error) {
			if mounts, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil {
				return err
			}
			if root, err = os.OpenFile(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
				mounts.Close()
				return err
			}
			return errOpened
		},
	})
	if err == errOpened {
		err = nil
	}
	return mounts, root, err
}

// explainLocked adds to an EPERM of mount_setattr(2) that flags of the mount are locked.
func explainLocked(fd int, err error) error {
	var fs unix.Statfs_t
	if !errors.Is(err, unix.EPERM) || unix.Fstatfs(fd, &fs) != nil {
		return err
	}
	var flags []string
	for _, f := range []struct {
		flag int64
		word string
	}{
		{unix.ST_RDONLY, "ro"}, {unix.ST_NOSUID, "nosuid"}, {unix.ST_NODEV, "nodev"}, {unix.ST_NOEXEC, "noexec"},
		{unix.ST_NOATIME, "noatime"}, {unix.ST_NODIRATIME, "nodiratime"}, {unix.ST_RELATIME, "relatime"},
	} {
		if fs.Flags&f.flag != 0 {
			flags = append(flags, f.word)
		}
	}
	if fs.Flags&(unix.ST_NOATIME|unix.ST_RELATIME) == 0 {
		flags = append(flags, "strictatime")
	}
	return fmt.Errorf("%w: the source is mounted with %s, and in a user namespace no option can clear these flags", err, strings.Join(flags, ","))
}

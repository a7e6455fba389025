package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsChrooted reports whether this process has another root than its mount namespace, as after chroot(8).
// A process that joins a mount namespace gets the root of that namespace. IsChrooted returns
// false if this process may not join one.
func IsChrooted() bool {
	changed := false
	_ = OnThread(func() error {
		before, err := rootMount()
		if err != nil {
			return err
		}
		self, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			return err
		}
		defer unix.Close(self)
		// Only a thread that shares its root with no other one can join a mount namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(self, unix.CLONE_NEWNS); err != nil {
			return err
		}
		after, err := rootMount()
		changed = err == nil && before != after
		return err
	})
	return changed
}

// rootMount identifies this thread's root: its mount and its inode. A bind mount of the whole tree has the same
// inode.
func rootMount() (id [2]uint64, err error) {
	var st unix.Statx_t
	err = unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_MNT_ID|unix.STATX_INO, &st)
	return [2]uint64{st.Mnt_id, st.Ino}, err
}

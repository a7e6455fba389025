package container

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// EnterBottom moves this thread to the root of its mount namespace. If chroot(8) was called for the
// daemon, that is another root than this process's. A root that pivot_root(2) puts in place of
// the process's own would then stand somewhere above the host's, and a process that joins the namespace, such
// as an exec, would be in the host's.
//
// The other threads keep their root. The working directory becomes the root.
func EnterBottom() error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("open a pidfd of this process: %w", err)
	}
	defer unix.Close(self)
	// Only a thread that shares its root with no other one can do that.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the root: %w", err)
	}
	return doing("enter the root of the mount namespace", unix.Setns(self, unix.CLONE_NEWNS))
}

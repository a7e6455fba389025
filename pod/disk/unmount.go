package disk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Unmount unmounts whatever is mounted on target, stacked mounts included. A
// target that is not a mount point, or not there, is fine. What is busy, because
// somebody has mounted below it or keeps a file of it open, is detached with all
// that is below it.
func Unmount(target string) error {
	for {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		}
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
}

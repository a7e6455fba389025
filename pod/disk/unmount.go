package disk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Unmount unmounts everything that is mounted on target, stacked mounts included. If
// target is not a mount point or does not exist, it returns nil. If a mount is busy,
// because of a mount below it or an open file, Unmount detaches it with all mounts
// below it.
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

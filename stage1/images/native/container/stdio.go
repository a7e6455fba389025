package container

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// OwnStdio changes the owner of the stdio of an app or exec to the user and group of the
// host that the client has named. The supervisor calls it before it makes the process,
// because a process in a user namespace can only change the owner of files of its own
// users.
func OwnStdio(stdio []*os.File, o *abi.Options) error {
	if o == nil || o.IoUID == 0 && o.IoGID == 0 {
		return nil
	}
	for _, f := range stdio {
		if f == nil {
			continue
		}
		if err := chown(int(f.Fd()), int(o.IoUID), int(o.IoGID)); err != nil {
			return fmt.Errorf("change the owner of %s: %w", f.Name(), err)
		}
	}
	return nil
}

// ownStdio makes the app's user the owner of the pipes and terminals of its stdio, so that
// the app can open them again by name (/dev/stderr).
func ownStdio(uid uint32) error {
	for fd := range 3 {
		if err := chown(fd, int(uid), -1); err != nil {
			return fmt.Errorf("change the owner of descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// chown changes the owner of an open file, unless it is the null device. It ignores files
// whose owner cannot be changed, because their filesystem is read-only or has no owners, or
// because the user namespace does not map the owner.
func chown(fd, uid, gid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); errors.Is(err, unix.EBADF) {
		return nil
	} else if err != nil {
		return err
	}
	if proc.IsNull(&st) || int(st.Uid) == uid && (gid < 0 || int(st.Gid) == gid) {
		return nil
	}
	err := unix.Fchown(fd, uid, gid)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

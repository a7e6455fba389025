package container

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// procfs is an open root of a procfs. It is used because an exec is in the app's mount
// namespace, where the app may have replaced /proc by a tmpfs with files of its own, or
// mounted something over files of /proc. A write to such a file would have no effect, or
// would affect another process.
type procfs struct{ fd int }

// openProcfs opens /proc, if that is the root of a procfs. Otherwise it makes a detached
// procfs, which has the processes of this PID namespace.
func openProcfs() (procfs, error) {
	fd, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = checkRoot(fd, unix.PROC_SUPER_MAGIC, "it is not the root of a procfs"); err == nil {
			return procfs{fd}, nil
		}
		unix.Close(fd)
	}
	const attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	fd, own := fsmount("proc", "proc", []parameter{{key: "subset", value: "pid"}}, attr)
	if own != nil {
		return procfs{-1}, fmt.Errorf("/proc of the app: %w; nor can another procfs be mounted: %w", err, own)
	}
	return procfs{fd}, nil
}

// checkRoot returns an error unless a directory is the root of a procfs or devpts. Links in
// the root of a procfs, such as thread-self, lead to the calling thread.
func checkRoot(fd int, magic int64, otherwise string) error {
	const rootInode = 1 // of procfs and devpts
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)); err != nil {
		return err
	}
	if fs.Type != magic || st.Ino != rootInode {
		return errors.New(otherwise)
	}
	return nil
}

func (p procfs) close() { unix.Close(p.fd) }

// open opens a file of the procfs. It fails if something is mounted over the file. The path
// must not cross a mount. It may contain only links that are paths in the procfs, such as
// self and thread-self.
func (p procfs) open(name string, flags uint64) (int, error) {
	fd, err := unix.Openat2(p.fd, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.EXDEV) {
		err = fmt.Errorf("something is mounted over it: %w", err)
	}
	return fd, err
}

// write writes a value to a file of the procfs.
func (p procfs) write(name, value string) error {
	fd, err := p.open(name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// reopen opens an open file of this thread a second time, with other flags.
func (p procfs) reopen(fd, flags int) (int, error) {
	dir, err := p.open("thread-self/fd", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat(dir, strconv.Itoa(fd), flags|unix.O_CLOEXEC, 0)
}

package container

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyUp copies what is in the directory from into the directory to, with
// owners, modes and times: a tmpfs that starts with what the image has there.
func copyUp(from, to int) error {
	source, err := reopen(from)
	if err != nil {
		return err
	}
	defer source.Close()
	names, err := source.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyEntry(from, to, name); err != nil {
			return &os.PathError{Op: "copy", Path: name, Err: err}
		}
	}
	return nil
}

func reopen(dir int) (*os.File, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "."), nil
}

func copyEntry(from, to int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := copyNode(from, to, name, &st); err != nil {
		return err
	}
	if err := unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(to, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func copyNode(from, to int, name string, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return copyDirectory(from, to, name)
	case unix.S_IFREG:
		return copyFile(from, to, name)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, name, buf)
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(buf[:n]), to, name)
	default:
		return unix.Mknodat(to, name, st.Mode, int(st.Rdev))
	}
}

func copyDirectory(from, to int, name string) error {
	const open = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	source, err := unix.Openat(from, name, open, 0)
	if err != nil {
		return err
	}
	defer unix.Close(source)
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return err
	}
	target, err := unix.Openat(to, name, open, 0)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return copyUp(source, target)
}

func copyFile(from, to int, name string) error {
	fd, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(fd), name)
	defer source.Close()
	fd, err = unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	target := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

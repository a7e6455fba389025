package container

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyUp copies the content of one directory into another, with owners, modes and times. It
// fills a new tmpfs with the files that the image has at the mount point.
//
// Another container may rename files of the source at any time. So copyUp opens an entry
// once, and examines and copies it through that descriptor. It also changes each copy
// through the descriptor with which it was made.
func copyUp(from, to int) error {
	fd, err := unix.Openat(from, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(fd), ".")
	defer source.Close()
	names, err := source.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyEntry(fd, to, name); err != nil {
			return &os.PathError{Op: "copy", Path: name, Err: err}
		}
	}
	return nil
}

func copyEntry(from, to int, name string) error {
	source, err := unix.Openat(from, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // the entry was removed meanwhile
	}
	if err != nil {
		return err
	}
	defer unix.Close(source)
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return err
	}
	made, err := copyNode(source, to, name, &st)
	if err != nil {
		return err
	}
	defer unix.Close(made)
	if err := unix.Fchownat(made, "", int(st.Uid), int(st.Gid), unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	if err := copyMode(made, &st); err != nil {
		return err
	}
	return unix.UtimesNanoAt(made, "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH)
}

// copyNode makes a copy of source without its content, and opens it. The copy is called
// name, and is in the directory to. st describes source. The open uses O_PATH if any other
// open could have an effect.
func copyNode(source, to int, name string, st *unix.Stat_t) (made int, err error) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return copyDirectory(source, to, name)
	case unix.S_IFREG:
		return copyFile(source, to, name)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		var n int
		if n, err = unix.Readlinkat(source, "", buf); err == nil {
			err = unix.Symlinkat(string(buf[:n]), to, name)
		}
	default:
		err = unix.Mknodat(to, name, st.Mode, int(st.Rdev))
	}
	if err != nil {
		return -1, err
	}
	return unix.Openat(to, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func copyMode(made int, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil // the file has no such attribute
	case unix.S_IFDIR, unix.S_IFREG:
		return unix.Fchmod(made, st.Mode&0o7777)
	default: // fchmod(2) does not accept an O_PATH descriptor
		return unix.Chmod(procPath(made), st.Mode&0o7777)
	}
}

func copyDirectory(source, to int, name string) (made int, err error) {
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return -1, err
	}
	made, err = unix.Openat(to, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := copyUp(source, made); err != nil {
		unix.Close(made)
		return -1, err
	}
	return made, nil
}

func copyFile(source, to int, name string) (made int, err error) {
	content, err := os.Open(procPath(source))
	if err != nil {
		return -1, errors.Unwrap(err)
	}
	defer content.Close()
	made, err = unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, err
	}
	if _, err := io.Copy(descriptor(made), content); err != nil {
		unix.Close(made)
		return -1, err
	}
	return made, nil
}

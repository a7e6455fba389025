package abi

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoFile is the error for what should be a file of a pod, and is something else.
var ErrNoFile = errors.New("not a file")

// OpenAt opens a file below a directory. No component of path may be a link: programs in the pods of some images can
// write there.
func OpenAt(dir int, path string, flags int) (fd int, err error) {
	err = again(func() (err error) {
		fd, err = unix.Openat2(dir, path, &unix.OpenHow{
			Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		return err
	})
	return fd, err
}

// OpenBelow is OpenAt for the path of a directory of a pod.
func OpenBelow(dir, path string, flags int) (*os.File, error) {
	fd := -1
	err := inDir(dir, func(base int) (err error) {
		fd, err = OpenAt(base, path, flags)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(dir, path), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, path)), nil
}

// inDir calls f with a descriptor of a directory.
func inDir(path string, f func(dir int) error) error {
	dir := -1
	err := again(func() (err error) {
		dir, err = unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return f(dir)
}

// openFile opens a file in a directory. It opens no link, no fifo and no device: to open a device may have an effect.
func openFile(dir int, name string, flags int) (fd int, err error) {
	var path int
	err = again(func() (err error) {
		path, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	defer unix.Close(path)
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, ErrNoFile
	}
	err = again(func() (err error) {
		fd, err = unix.Open("/proc/self/fd/"+strconv.Itoa(path), flags|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// ReadAt reads a file below a directory, of which the rules of OpenAt hold, up to a number of bytes.
func ReadAt(dir int, path string, limit int64) (text []byte, mtime time.Time, err error) {
	parent, err := OpenAt(dir, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, mtime, err
	}
	defer unix.Close(parent)
	fd, err := openFile(parent, filepath.Base(path), unix.O_RDONLY)
	if err != nil {
		return nil, mtime, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, mtime, err
	}
	text, err = io.ReadAll(io.LimitReader(f, limit))
	return text, st.ModTime(), err
}

// ReadBelow is ReadAt for the path of a directory of a pod.
func ReadBelow(dir, path string, limit int64) (text []byte, mtime time.Time, err error) {
	err = inDir(dir, func(base int) (err error) {
		text, mtime, err = ReadAt(base, path, limit)
		return err
	})
	if err != nil {
		err = &os.PathError{Op: "read", Path: filepath.Join(dir, path), Err: err}
	}
	return text, mtime, err
}

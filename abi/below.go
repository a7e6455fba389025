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

// OpenBelow opens a file below a directory of a pod. No component of path may be a link: programs in the pods of some images can
// write there.
func OpenBelow(dir, path string, flags int) (*os.File, error) {
	fd, err := openBelow(dir, path, flags)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(dir, path), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir, path)), nil
}

func openBelow(dir, path string, flags int) (fd int, err error) {
	var base int
	err = again(func() (err error) {
		base, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	defer unix.Close(base)
	err = again(func() (err error) {
		fd, err = unix.Openat2(base, path, &unix.OpenHow{
			Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		return err
	})
	return fd, err
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

// ReadBelow reads a file below a directory of a pod, of which OpenBelow's rules hold, up to a number of bytes.
func ReadBelow(dir, path string, limit int64) (text []byte, mtime time.Time, err error) {
	fd, err := openBelow(dir, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		parent := fd
		defer unix.Close(parent)
		fd, err = openFile(parent, filepath.Base(path), unix.O_RDONLY)
	}
	if err != nil {
		return nil, mtime, &os.PathError{Op: "open", Path: filepath.Join(dir, path), Err: err}
	}
	f := os.NewFile(uintptr(fd), filepath.Join(dir, path))
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, mtime, err
	}
	text, err = io.ReadAll(io.LimitReader(f, limit))
	return text, st.ModTime(), err
}

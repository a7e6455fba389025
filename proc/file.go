package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// OpenFile is os.OpenFile for a file or directory that nobody waits for: os.OpenFile finds out
// whether the file can be polled, which takes five more system calls.
func OpenFile(path string, flag int, perm os.FileMode) (*os.File, error) {
	fd, err := open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenFD is OpenFile for a caller that needs no os.File: to make one is a system call, too.
func OpenFD(path string, flag int) (int, error) { return open(path, flag, 0) }

// OpenAt is OpenFD for a path that is relative to an open directory.
func OpenAt(dir int, path string, flag int) (int, error) { return openAt(dir, path, flag, 0) }

// ReadFile is os.ReadFile in the fewest system calls.
func ReadFile(path string) ([]byte, error) { return ReadFileAt(unix.AT_FDCWD, path) }

// ReadFileAt is ReadFile for a path that is relative to an open directory.
func ReadFileAt(dir int, path string) ([]byte, error) {
	fd, err := OpenAt(dir, path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b, err := ReadAll(fd)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return b, nil
}

// ReadOnce is ReadFile for a file that the kernel makes as a whole at the first read, as it does
// with the values of a cgroup: a read that does not fill the buffer has reached the end.
func ReadOnce(path string) ([]byte, error) {
	fd, err := OpenFD(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 512)
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if b = b[:len(b)+n]; len(b) < cap(b) {
			return b, nil
		}
		b = append(b, 0)[:len(b)]
	}
}

// ReadAll reads an open file to its end.
func ReadAll(fd int) ([]byte, error) {
	b := make([]byte, 0, 512)
	for {
		n, err := again(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return b, nil
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// WriteFile is os.WriteFile in the fewest system calls, for a file of the kernel's that takes
// all of a write or nothing: each line is one write.
func WriteFile(path string, lines ...string) error {
	return WriteFileAt(unix.AT_FDCWD, path, lines...)
}

// WriteFileAt is WriteFile for a path that is relative to an open directory.
func WriteFileAt(dir int, path string, lines ...string) error {
	fd, err := openAt(dir, path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if _, err = again(func() (int, error) { return unix.Write(fd, []byte(line)) }); err != nil {
			err = &os.PathError{Op: "write " + line + " to", Path: path, Err: err}
			break
		}
	}
	return errors.Join(err, unix.Close(fd))
}

func open(path string, flag int, perm os.FileMode) (int, error) {
	return openAt(unix.AT_FDCWD, path, flag, perm)
}

func openAt(dir int, path string, flag int, perm os.FileMode) (int, error) {
	fd, err := again(func() (int, error) { return unix.Openat(dir, path, flag|unix.O_CLOEXEC, uint32(perm.Perm())) })
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// again repeats a system call that a signal interrupts.
func again(call func() (int, error)) (n int, err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		n, err = call()
	}
	return n, err
}

package shim

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// This package opens two kinds of files. Polled ones are in nonblocking mode, in the
// runtime's poller, and for this process alone: a goroutine that waits for one needs no
// thread, and Close ends the wait. Plain ones are in blocking mode, as another process
// expects of a file that it inherits. The mode belongs to the open file description, so
// no file is both.

// polled makes a file of a descriptor in nonblocking mode.
func polled(fd int, name string) *os.File { return os.NewFile(uintptr(fd), name) }

// openPolled opens a file for this process.
func openPolled(path string, flags int) (*os.File, error) {
	fd, err := open(path, flags|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return polled(fd, path), nil
}

// openPlain opens a file without ever waiting for the other end of a fifo.
func openPlain(path string, flags int) (*os.File, error) {
	fd, err := open(path, flags|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// end is the mode of one end of a pipe.
type end bool

const (
	inherited end = false // plain, for another process
	ours      end = true  // polled
)

// pipe makes a pipe whose ends have the modes asked for.
func pipe(r, w end) (read, write *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	for i, mode := range []end{r, w} {
		if mode == inherited {
			continue
		}
		if err := unix.SetNonblock(fds[i], true); err != nil {
			_ = unix.Close(fds[0])
			_ = unix.Close(fds[1])
			return nil, nil, fmt.Errorf("make a pipe: %w", err)
		}
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// isFifo reports whether there is a fifo at path.
func isFifo(path string) (bool, error) {
	st, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return st.Mode()&os.ModeNamedPipe != 0, nil
}

// chown gives the inode of a pipe or fifo to the user that a process runs as, so that the
// process can open /dev/stdout again (requirements.md#I6). Nothing is done for root.
func chown(f *os.File, uid, gid uint32) error {
	if f == nil || uid == 0 && gid == 0 {
		return nil
	}
	if err := f.Chown(int(uid), int(gid)); err != nil {
		return fmt.Errorf("give a stream to user %d, group %d: %w", uid, gid, err)
	}
	return nil
}

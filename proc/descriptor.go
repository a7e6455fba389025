package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Control calls f with the descriptor of a file. The file is not closed before f returns.
func Control(file syscall.Conn, f func(fd int) error) error {
	c, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// CloseFiles closes files that have no unwritten data. It skips nil and closed files.
func CloseFiles(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// WaitRead calls f with the descriptor of a file in the runtime's poller. As long as f
// returns EAGAIN, it waits until the file is readable and calls f again.
func WaitRead(file syscall.Conn, f func(fd int) error) error {
	c, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = c.Read(func(fd uintptr) bool {
		inner = f(int(fd))
		return !errors.Is(inner, unix.EAGAIN)
	})
	if err != nil {
		return err
	}
	return inner
}

// IsNull reports whether a file is the null device.
func IsNull(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// Duplicate returns a copy of a file, whose Close ends a Read if the file can be polled.
func Duplicate(f *os.File) (*os.File, error) {
	var fd int
	err := Control(f, func(own int) (err error) {
		if fd, err = unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return err
		}
		if err = unix.SetNonblock(fd, true); err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

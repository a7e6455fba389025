package shim

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// pollConsole takes over a pty's master and returns it in the runtime's poller.
func pollConsole(console *os.File) (*os.File, error) {
	defer console.Close()
	conn, err := console.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	fd, fdErr := -1, error(nil)
	err = conn.Control(func(old uintptr) {
		if fd, fdErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); fdErr != nil {
			return
		}
		fdErr = unix.SetNonblock(fd, true)
	})
	if err == nil {
		err = fdErr
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("console: %w", err)
	}
	return polled(fd, "console"), nil
}

// resize sets a terminal's size through its master.
func resize(console *os.File, size pod.Size) error {
	conn, err := console.SyscallConn()
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	var ioErr error
	err = conn.Control(func(fd uintptr) {
		ioErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
	if err == nil {
		err = ioErr
	}
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

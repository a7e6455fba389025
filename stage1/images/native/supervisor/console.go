package supervisor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// forward sends the master of an app's pty to the listener of the console socket, in one
// message. A relative path is one in the pod's directory, as in all of a request.
func forward(path string, master *os.File) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket for the console: %w", err)
	}
	s, err := seqpacket.Adopt(fd, "console")
	if err != nil {
		return err
	}
	defer s.Close()
	// Non-blocking: if the listener's queue is full, it is not listening for us.
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("connect to console socket %s: %w", path, err)
	}
	if err := s.Send([]byte("console"), int(master.Fd())); err != nil {
		return fmt.Errorf("send the console to %s: %w", path, err)
	}
	return nil
}

package supervisor

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// forward sends the master of an app's pty to the listener of the console socket, in one
// message. As in the whole request, a relative path is relative to the pod's directory.
func forward(call *abi.Request, master *os.File) error {
	return hand(call.ConsoleSocket, "console", []byte("console"), master)
}

// patience is how long hand waits for a peer that does not read.
const patience = 10 * time.Second

// hand sends a message and a file to the listener of a unix stream socket.
func hand(path, what string, message []byte, file *os.File) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket for the %s: %w", what, err)
	}
	s, err := seqpacket.Adopt(fd, what)
	if err != nil {
		return err
	}
	defer s.Close()
	// The socket is non-blocking, so connect(2) fails if the listener's queue is full.
	// Such a listener does not accept connections.
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("connect to %s socket %s: %w", what, path, err)
	}
	n := 0
	err = proc.Control(s, func(fd int) (err error) {
		n, err = unix.SendmsgN(fd, message, unix.UnixRights(int(file.Fd())), nil, unix.MSG_NOSIGNAL)
		return err
	})
	if err == nil && n < len(message) { // the message is longer than the socket's buffer
		if err = s.SetWriteDeadline(time.Now().Add(patience)); err == nil {
			_, err = s.Write(message[n:])
		}
	}
	if err != nil {
		return fmt.Errorf("send the %s to %s: %w", what, path, err)
	}
	return nil
}

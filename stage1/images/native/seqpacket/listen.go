package seqpacket

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Listen makes a socket at a path. Only root may connect.
func Listen(path string) (Socket, error) { return listen(path, unix.SOCK_SEQPACKET) }

// ListenStream makes a socket for senders of a descriptor on a stream, such as OCI runtimes.
func ListenStream(path string) (Socket, error) { return listen(path, unix.SOCK_STREAM) }

func listen(path string, kind int) (Socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Socket{}, fmt.Errorf("make the socket %s: %w", path, err)
	}
	s, err := Adopt(fd, path)
	if err != nil {
		return Socket{}, err
	}
	mask := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	unix.Umask(mask)
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		s.Close()
		return Socket{}, fmt.Errorf("listen on %s: %w", path, err)
	}
	return s, nil
}

// Accept returns the next connection.
func (s Socket) Accept() (Socket, error) {
	var fd int
	err := proc.WaitRead(s, func(listener int) (err error) {
		for {
			fd, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err != unix.EINTR && err != unix.ECONNABORTED {
				return err
			}
		}
	})
	if err != nil {
		return Socket{}, err
	}
	return Socket{os.NewFile(uintptr(fd), "a call")}, nil
}

package seqpacket

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// ListenStream makes a socket for streams at a path. Only root may connect.
func ListenStream(path string) (Socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
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
	fd, err := proc.Accept(s)
	if err != nil {
		return Socket{}, err
	}
	return Socket{os.NewFile(uintptr(fd), "a call")}, nil
}

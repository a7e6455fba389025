package seqpacket

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Socket is a unix socket whose reads wait in the Go runtime's poller, so that a silent
// peer costs a goroutine and no thread. Package net could do the same, but would cost half
// a megabyte.
type Socket struct{ *os.File }

// Adopt takes over a descriptor of a socket.
func Adopt(fd int, name string) (Socket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return Socket{}, fmt.Errorf("set %s non-blocking: %w", name, err)
	}
	return Socket{os.NewFile(uintptr(fd), name)}, nil
}

// Pair makes two connected sockets: ours, and one to be inherited.
func Pair(name string) (ours Socket, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Socket{}, nil, fmt.Errorf("make %s: %w", name, err)
	}
	if ours, err = Adopt(fds[0], name); err != nil {
		unix.Close(fds[1])
		return Socket{}, nil, err
	}
	return ours, os.NewFile(uintptr(fds[1]), name), nil
}

// Receive reads one packet and its descriptors. The caller closes them. The error is io.EOF
// when the peer has closed its socket.
func (s Socket) Receive(maxFiles int) (packet []byte, fds []int, err error) {
	var n int
	err = proc.WaitRead(s, func(fd int) (err error) {
		// Read the size first, so that a short packet does not need a large buffer.
		if n, err = peekSize(fd); err != nil || n == 0 {
			return err
		}
		packet = make([]byte, n)
		n, fds, err = proc.Receive(fd, packet, maxFiles)
		return err
	})
	if err == unix.ECONNRESET || err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, nil, err
	}
	return packet, fds, nil
}

// ReceiveFile reads the beginning of a stream, with the one descriptor that comes with it.
func (s Socket) ReceiveFile() (fd int, err error) {
	n, fds, err := proc.ReceiveFrom(s, make([]byte, 64), 1)
	if err != nil {
		return -1, err
	}
	if len(fds) != 1 {
		return -1, fmt.Errorf("%d bytes came with %d descriptors in place of one", n, len(fds))
	}
	return fds[0], nil
}

// peekSize returns the size of the next packet. At the end it returns 0, because no packet
// is empty.
func peekSize(fd int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Send sends one packet with descriptors. It does not wait for room in the socket, because
// a peer gets only packets that it has asked for.
func (s Socket) Send(packet []byte, fds ...int) error {
	return proc.Control(s, func(fd int) error { return proc.Send(fd, packet, fds...) })
}

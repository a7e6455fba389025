package seqpacket

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Socket is a unix socket whose reads wait in the runtime's poller, so that a
// silent peer costs a goroutine and no thread. Package net would do as well,
// and cost half a megabyte.
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

// Receive reads one packet and its descriptors, which the caller closes. The
// error is io.EOF when the peer has gone.
func (s Socket) Receive(maxFiles int) (packet []byte, fds []int, err error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	var n, rightsLen, flags int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		// Its size first, so that a short packet costs no room for a long one.
		if n, failed = peekSize(int(fd)); failed != nil || n == 0 {
			return failed != unix.EAGAIN
		}
		packet = make([]byte, n)
		n, rightsLen, flags, _, failed = unix.Recvmsg(int(fd), packet, rights, unix.MSG_CMSG_CLOEXEC)
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	if failed == unix.ECONNRESET || failed == nil && n == 0 {
		return nil, nil, io.EOF
	}
	if failed != nil {
		return nil, nil, failed
	}
	fds = descriptors(rights[:rightsLen])
	if flags&unix.MSG_CTRUNC != 0 {
		closeAll(fds)
		if len(fds) < maxFiles { // the kernel had no number for the next one
			return nil, nil, unix.EMFILE
		}
		return nil, nil, unix.EMSGSIZE
	}
	return packet, fds, nil
}

// ReceiveFile reads the beginning of a stream, with the one descriptor that comes with it.
func (s Socket) ReceiveFile() (fd int, err error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return -1, err
	}
	var rights, text [64]byte
	var n, length int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, length, _, _, failed = unix.Recvmsg(int(fd), text[:], rights[:], unix.MSG_CMSG_CLOEXEC)
		return failed != unix.EAGAIN && failed != unix.EINTR
	})
	if err != nil {
		return -1, err
	}
	if failed != nil {
		return -1, failed
	}
	fds := descriptors(rights[:length])
	if len(fds) != 1 {
		closeAll(fds)
		return -1, fmt.Errorf("%d bytes came with %d descriptors in place of one", n, len(fds))
	}
	return fds[0], nil
}

// peekSize returns the size of the packet that is next. Nobody sends empty
// ones: 0 is the end of file.
func peekSize(fd int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func descriptors(rights []byte) []int {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	var fds []int
	for _, m := range messages {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Send sends one packet with descriptors. It does not wait for room: nobody
// here sends more than the peer has asked for.
func (s Socket) Send(packet []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.Sendmsg(int(fd), packet, rights, nil, unix.MSG_NOSIGNAL)
	})
	if err != nil {
		return err
	}
	return failed
}

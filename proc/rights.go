package proc

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// Send sends one message with descriptors over a unix socket. If a non-blocking socket has
// no room, the error is EAGAIN.
func Send(socket int, message []byte, fds ...int) error {
	_, err := SendSome(socket, message, fds...)
	return err
}

// SendSome is Send, and returns how many bytes of the message a stream has accepted.
func SendSome(socket int, message []byte, fds ...int) (n int, err error) {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for {
		n, err = unix.SendmsgN(socket, message, rights, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// Receive reads one message, or the beginning of a stream, and the descriptors that come
// with it, at most maxFiles. The caller closes them. The error is io.EOF after the peer has
// closed its end, EMSGSIZE for more than maxFiles descriptors, and EMFILE if this process
// can open no more.
func Receive(socket int, buf []byte, maxFiles int) (n int, fds []int, err error) {
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	var length, flags int
	for {
		n, length, flags, _, err = unix.Recvmsg(socket, buf, rights, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, nil, err
	}
	fds = descriptors(rights[:length])
	switch {
	case flags&unix.MSG_CTRUNC != 0 && len(fds) < maxFiles:
		err = unix.EMFILE
	case flags&unix.MSG_CTRUNC != 0, len(fds) > maxFiles: // because of its alignment, the buffer has room for one more than maxFiles
		err = unix.EMSGSIZE
	case n == 0:
		err = io.EOF
	}
	if err != nil {
		CloseAll(fds)
		return 0, nil, err
	}
	return n, fds, nil
}

// ReceiveFrom is Receive from a socket whose reads wait in the runtime's poller.
func ReceiveFrom(socket syscall.Conn, buf []byte, maxFiles int) (n int, fds []int, err error) {
	err = WaitRead(socket, func(fd int) (err error) {
		n, fds, err = Receive(fd, buf, maxFiles)
		return err
	})
	return n, fds, err
}

// Accept returns the next connection of a listener whose reads wait in the runtime's poller.
// The connection is non-blocking.
func Accept(listener syscall.Conn) (fd int, err error) {
	err = WaitRead(listener, func(socket int) (err error) {
		for {
			fd, _, err = unix.Accept4(socket, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err != unix.EINTR && err != unix.ECONNABORTED {
				return err
			}
		}
	})
	return fd, err
}

func descriptors(rights []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// CloseAll closes descriptors that no os.File has.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

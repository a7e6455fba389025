package channel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AwaitHost waits until the host has opened its end of a virtio-serial port. The guest learns the
// name of a port before that, and until then the kernel answers a read of the port with its end.
func AwaitHost(port int) error {
	wait := func() error {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// By its edges: while the host's end is closed, the level is EPOLLHUP. When the host opens it,
		// the port can be written.
		events := []unix.EpollEvent{{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLET&(1<<32-1), Fd: int32(port)}}
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, port, &events[0]); err != nil {
			return err
		}
		for {
			n, err := unix.EpollWait(fd, events, -1)
			switch {
			case err == unix.EINTR:
			case err != nil:
				return err
			case n > 0 && events[0].Events&unix.EPOLLHUP == 0:
				return nil
			}
		}
	}
	if err := wait(); err != nil {
		return fmt.Errorf("wait for the host's end of the port: %w", err)
	}
	return nil
}

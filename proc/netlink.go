package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// changes are the netlink groups that report changes of links, addresses and routes.
const changes = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE

// NetworkChanges returns a file that can be read when a link, address or route of a network
// namespace has changed. The file keeps the namespace alive. A read error of ENOBUFS means that
// there were more changes than the socket has room for.
func NetworkChanges(netns *os.File) (*os.File, error) {
	fd := -1
	err := OnThread(func() (err error) {
		fd, err = changesIn(int(netns.Fd()))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen to a network namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), "changes of "+netns.Name()), nil
}

// changesIn moves the calling thread into the namespace, and makes the socket there.
func changesIn(netns int) (int, error) {
	if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: changes}); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

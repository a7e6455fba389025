package serve

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrUntrusted says that processes other than root's can use a socket.
var ErrUntrusted = errors.New("not a socket of root's with mode 0600")

// Dial connects to a socket below root. The stage1 may have changed the tree, so Dial
// follows no symbolic link. Both the socket and the process that listens must be root's.
func Dial(root, path string) (*Conn, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	file, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(file)
	var st unix.Stat_t
	if err := unix.Fstat(file, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Uid != 0 || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %#o and user %d: %w", path, st.Mode, st.Uid, ErrUntrusted)
	}
	// Use the descriptor, because the address of a socket has room for 107 bytes only, and
	// the file may be replaced meanwhile.
	return connect(fmt.Sprintf("/proc/self/fd/%d", file))
}

func connect(path string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		err = isRoot(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return NewConn(fd), nil
}

// isRoot returns an error if the peer of a socket is no process of root.
func isRoot(fd int) error {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return err
	}
	if peer.Uid != 0 {
		return fmt.Errorf("process %d of user %d: %w", peer.Pid, peer.Uid, ErrUntrusted)
	}
	return nil
}

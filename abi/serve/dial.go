package serve

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrUntrusted says that a socket is not one that root alone can use.
var ErrUntrusted = errors.New("not a socket of root's with mode 0600")

// Dial connects to a socket below root, which the stage1 may have written to: it follows no
// symbolic link. The socket must be root's alone, and so must be the process that listens.
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
	// By descriptor: a socket's address has room for 107 bytes only, and the file may be
	// replaced.
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

// isRoot returns an error if the peer of a socket is not a process of root's.
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

package serve

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// ErrUntrusted says that processes other than root's can use a socket.
var ErrUntrusted = errors.New("not a socket of root's with mode 0600")

// Door is the file of a socket that stage 0 connects to for each call. The file keeps leading to
// the process that has made it, even if another file replaces it. Its methods may be called
// concurrently.
type Door struct{ file *os.File }

// Open opens a socket below root. The stage1 may have changed the tree, so Open follows no
// symbolic link. The socket must be root's.
func Open(root, path string) (*Door, error) {
	file, err := abi.OpenBelow(root, path, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(file.Fd()), &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Uid != 0 || st.Mode&0o077 != 0) {
		err = fmt.Errorf("%s has mode %#o and user %d: %w", path, st.Mode, st.Uid, ErrUntrusted)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return &Door{file}, nil
}

// Connect connects to the socket. The process that listens must be root's. The error is
// unix.ECONNREFUSED if none listens any more.
func (d *Door) Connect() (c *Conn, err error) {
	raw, err := d.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Use the descriptor, because the address of a socket has room for 107 bytes only, and
	// the path may lead to another file.
	controlErr := raw.Control(func(fd uintptr) { c, err = connect(fmt.Sprintf("/proc/self/fd/%d", fd)) })
	return c, errors.Join(controlErr, err)
}

// Close closes the file. Connections stay open.
func (d *Door) Close() error { return d.file.Close() }

// Dial opens a socket below root and connects to it once.
func Dial(root, path string) (*Conn, error) {
	d, err := Open(root, path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Connect()
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

package machine

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// virtiofsd is the path of Debian's virtiofsd, as QEMU's package has it.
const virtiofsd = "/usr/lib/qemu/virtiofsd"

// startShare starts the virtiofsd of a share, and returns QEMU's end of the connection to it.
//
// virtiofsd puts itself into mount, pid and network namespaces with the directory as root. Its
// mounts are slaves of those of this process. The pid namespace in which it starts is for its end:
// when its first process is killed, so is the second one, which serves the files.
func startShare(c *Config, n int) (*process, *os.File, error) {
	s := &c.Shares[n]
	listener, conn, err := connection(filepath.Join(c.Dir, "share"+strconv.Itoa(n)))
	if err != nil {
		return nil, nil, fmt.Errorf("share %s: %w", s.Tag, err)
	}
	defer listener.Close()
	cache := s.Cache
	if cache == "" {
		cache = "auto"
	}
	p, err := start(c.Children, []string{
		virtiofsd, "-f", "--fd=3", "-o", "source=" + s.Dir, "-o", "cache=" + cache,
		"-o", "sandbox=namespace", "-o", "xattr", "-o", "announce_submounts",
		"--rlimit-nofile=0", // as many as this process may open
	}, []*os.File{listener}, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("share %s: %w", s.Tag, err)
	}
	return p, conn, nil
}

// connection returns a listening socket and the first connection to it. No other process can
// connect, because the socket has no name when connection returns, and only root can open it
// before.
func connection(path string) (listener, conn *os.File, err error) {
	dir, err := proc.OpenFile(filepath.Dir(path), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	// The path of a socket has at most 107 bytes.
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close() // removes the socket's name
	peer, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	defer peer.Close()
	if listener, err = l.File(); err != nil {
		return nil, nil, err
	}
	if conn, err = peer.File(); err != nil {
		listener.Close()
		return nil, nil, err
	}
	return listener, conn, nil
}

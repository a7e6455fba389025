package stage1

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// maxSocketPath is the length of a path that a sockaddr_un has room for, without
// the final zero.
const maxSocketPath = 107

// consoleLimit is how long the master may take to arrive after the call has
// reported ready.
const consoleLimit = 2 * time.Second

// console receives the pty master of one process.
type console struct {
	path     string // for the stage1
	file     string // to be removed
	listener *net.UnixListener
	got      chan struct{} // closed when master or err is set
	master   *os.File
	err      error

	mu     sync.Mutex
	conn   *net.UnixConn // the connection, while it is read
	closed bool
}

// listenConsole makes a console socket in a pod directory. If the directory's
// path is too long for a socket's address, the stage1 gets a relative path,
// because its working directory is the pod's.
func listenConsole(dir string) (*console, error) {
	name := "tty-" + rand.Text()[:8]
	c := &console{file: filepath.Join(dir, name), got: make(chan struct{})}
	c.path = c.file
	address := c.file
	if len(c.file) > maxSocketPath {
		d, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("make the console socket: %w", err)
		}
		defer d.Close()
		address = fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
		c.path = name
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the console socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // close removes it: the address may no longer lead to it
	c.listener = l
	if err := os.Chmod(c.file, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make the console socket: %w", err), l.Close(), os.Remove(c.file))
	}
	go c.accept()
	return c, nil
}

// accept takes one connection, and one message with one descriptor from it. It
// returns when close is called, at the latest.
func (c *console) accept() {
	defer close(c.got)
	conn, err := c.listener.AcceptUnix()
	if err != nil {
		c.err = fmt.Errorf("accept on the console socket: %w", err)
		return
	}
	defer conn.Close()
	c.mu.Lock()
	c.conn = conn
	closed := c.closed
	c.mu.Unlock()
	if !closed {
		c.master, c.err = receiveMaster(conn)
	}
}

func receiveMaster(conn *net.UnixConn) (*os.File, error) {
	// Use a buffer for more than one descriptor, so that unexpected ones are
	// received and closed.
	_, fds, err := proc.ReceiveFrom(conn, make([]byte, 4096), 8)
	if err != nil {
		return nil, fmt.Errorf("read from the console socket: %w", err)
	}
	if len(fds) != 1 {
		proc.CloseAll(fds)
		return nil, fmt.Errorf("it sent %d descriptors to the console socket instead of one, the pty master", len(fds))
	}
	// Only the master of a pty answers this request for the number of the slave.
	if _, err := unix.IoctlGetInt(fds[0], unix.TIOCGPTN); err != nil {
		proc.CloseAll(fds)
		return nil, fmt.Errorf("what it sent to the console socket is not the master of a pty: %w", err)
	}
	// Set it non-blocking, so that the runtime's poller can wait for it.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		proc.CloseAll(fds)
		return nil, fmt.Errorf("pty master: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pty master"), nil
}

// await waits for the master. When it is called, the process is ready, so the
// master was sent.
func (c *console) await(ctx context.Context) error {
	limit := time.NewTimer(consoleLimit)
	defer limit.Stop()
	select {
	case <-c.got:
		return c.err
	case <-limit.C:
		return errors.New("it reported ready without sending a pty master to RKT_CONSOLE_SOCKET")
	case <-ctx.Done():
		return fmt.Errorf("wait for the pty master: %w", context.Cause(ctx))
	}
}

// take returns the master, which the caller then owns. Call it only after await
// has returned nil.
func (c *console) take() *os.File {
	m := c.master
	c.master = nil
	return m
}

// close removes the socket, and the master if it was not taken.
func (c *console) close() {
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	c.mu.Unlock()
	_ = c.listener.Close()
	if conn != nil {
		_ = conn.Close()
	}
	<-c.got
	if c.master != nil {
		_ = c.master.Close()
	}
	_ = os.Remove(c.file)
}

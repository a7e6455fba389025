package stage1

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what a sockaddr_un holds, without the final zero.
const maxSocketPath = 107

// consoleLimit is how long the master may take after the call has said that it
// is ready.
const consoleLimit = 5 * time.Second

// console receives the pty master of one process.
type console struct {
	path     string // for the stage1
	file     string // to be removed
	listener *net.UnixListener
	got      chan struct{}
	master   *os.File
	err      error
}

// listenConsole makes a console socket in a pod directory. Where the directory's
// path is too long for a socket's address the stage1 gets a relative one: its
// working directory is the pod's.
func listenConsole(dir string) (*console, error) {
	name := "tty-" + rand.Text()[:8]
	c := &console{file: filepath.Join(dir, name), got: make(chan struct{})}
	c.path = c.file
	addr := c.file
	if len(c.file) > maxSocketPath {
		d, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		addr = fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
		c.path = name
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the console socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	c.listener = l
	if err := os.Chmod(c.file, 0o600); err != nil {
		c.listener.Close()
		return nil, errors.Join(err, os.Remove(c.file))
	}
	go c.accept()
	return c, nil
}

// accept takes one connection and one message with one descriptor. It ends with
// the listener at the latest.
func (c *console) accept() {
	defer close(c.got)
	conn, err := c.listener.AcceptUnix()
	if err != nil {
		c.err = fmt.Errorf("nobody has sent a pty master to the console socket: %w", err)
		return
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(consoleLimit))
	c.master, c.err = receiveMaster(conn)
}

func receiveMaster(conn *net.UnixConn) (*os.File, error) {
	// Room for more than one descriptor: what should not be there is closed.
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*4))
	_, n, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, fmt.Errorf("receive the pty master: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, fmt.Errorf("receive the pty master: %w", err)
	}
	var fds []int
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	if len(fds) != 1 {
		closeAll(fds)
		return nil, fmt.Errorf("the console socket got %d descriptors and wants one, the pty master", len(fds))
	}
	unix.CloseOnExec(fds[0])
	if _, err := unix.IoctlGetWinsize(fds[0], unix.TIOCGWINSZ); err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("what the console socket got is not a terminal: %w", err)
	}
	// Non-blocking, so that the runtime's poller waits for it.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		closeAll(fds)
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pty master"), nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// await waits for the master once the process is ready.
func (c *console) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, consoleLimit)
	defer cancel()
	select {
	case <-c.got:
		return c.err
	case <-ctx.Done():
		return errors.New("it reported ready, but no pty master came to RKT_CONSOLE_SOCKET")
	}
}

// take hands the master over.
func (c *console) take() *os.File {
	m := c.master
	c.master = nil
	return m
}

// close removes the socket, and the master if nobody took it.
func (c *console) close() {
	_ = c.listener.Close()
	<-c.got
	if c.master != nil {
		_ = c.master.Close()
	}
	_ = os.Remove(c.file)
}

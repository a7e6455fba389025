// Package console receives the pty master of a process with a terminal from a stage1, on a
// socket that it makes in a directory of its caller (docs/stage1-abi.md, section 5). It knows no calls.
package console

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
	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
)

// maxSocketPath is the length of a path that a sockaddr_un has room for, without
// the final zero.
const maxSocketPath = 107

// masterLimit is how long the master may take to arrive after the call has
// reported ready.
const masterLimit = 2 * time.Second

// Socket is the console socket of one process.
type Socket struct {
	// Path is the socket's path for the stage1, whose working directory is the pod's.
	Path string

	file     string // to be removed
	listener *net.UnixListener
	stop     func()        // ends accept while it waits for descriptors
	got      chan struct{} // closed when master or err is set
	master   *os.File
	err      error

	mu     sync.Mutex
	conn   *net.UnixConn // the connection, while it is read
	closed bool
}

// Listen makes a console socket in a directory. If the directory's path is too long for a
// socket's address, Path is relative.
func Listen(dir string) (*Socket, error) {
	name := "tty-" + rand.Text()[:8]
	s := &Socket{file: filepath.Join(dir, name), got: make(chan struct{})}
	s.Path = s.file
	address := s.file
	if len(s.file) > maxSocketPath {
		d, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("make the console socket: %w", err)
		}
		defer d.Close()
		address = fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
		s.Path = name
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the console socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // Close removes it: the address may no longer lead to it
	s.listener = l
	if err := os.Chmod(s.file, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("make the console socket: %w", err), l.Close(), os.Remove(s.file))
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.accept(ctx)
	return s, nil
}

// accept takes one connection, and one message with one descriptor from it. It
// returns when Close is called, at the latest.
func (s *Socket) accept(ctx context.Context) {
	defer close(s.got)
	var conn *net.UnixConn
	err := stream.Retry(ctx, func() (err error) {
		conn, err = s.listener.AcceptUnix()
		return err
	})
	if err != nil {
		s.err = fmt.Errorf("accept on the console socket: %w", err)
		return
	}
	defer conn.Close()
	s.mu.Lock()
	s.conn = conn
	closed := s.closed
	s.mu.Unlock()
	if !closed {
		s.master, s.err = receiveMaster(conn)
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

// Await waits for the master. When it is called, the process is ready, so the
// master was sent.
func (s *Socket) Await(ctx context.Context) error {
	limit := time.NewTimer(masterLimit)
	defer limit.Stop()
	select {
	case <-s.got:
		return s.err
	case <-limit.C:
		return errors.New("it reported ready without sending a pty master to RKT_CONSOLE_SOCKET")
	case <-ctx.Done():
		return fmt.Errorf("wait for the pty master: %w", context.Cause(ctx))
	}
}

// Take returns the master, which the caller then owns. Call it only after Await
// has returned nil.
func (s *Socket) Take() *os.File {
	m := s.master
	s.master = nil
	return m
}

// Close removes the socket, and the master if it was not taken.
func (s *Socket) Close() {
	s.mu.Lock()
	s.closed = true
	conn := s.conn
	s.mu.Unlock()
	s.stop()
	_ = s.listener.Close()
	if conn != nil {
		_ = conn.Close()
	}
	<-s.got
	if s.master != nil {
		_ = s.master.Close()
	}
	_ = os.Remove(s.file)
}

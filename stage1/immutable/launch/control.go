package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Control gives orders to one launcher. Only one goroutine at a time may use it.
type Control struct {
	ours, theirs *os.File
}

// NewControl makes the socket for a launcher. The launcher must be started with File as its
// descriptor ControlFD.
func NewControl() (*Control, error) {
	var pair [2]int
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket for the launcher: %w", err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]), unix.Close(pair[1]))
	}
	return &Control{ours: os.NewFile(uintptr(pair[0]), "launcher"), theirs: os.NewFile(uintptr(pair[1]), "launcher")}, nil
}

// File returns the launcher's end. Call Started when the launcher was started with it.
func (c *Control) File() *os.File { return c.theirs }

// Started closes this process's descriptor of the launcher's end.
func (c *Control) Started() { _ = c.theirs.Close() }

// Close ends a launcher that waits for orders.
func (c *Control) Close() {
	_ = c.theirs.Close()
	_ = c.ours.Close()
}

// Join makes the launcher enter cgroups and namespaces. If there are files, they become its
// descriptors 0, 1 and 2.
func (c *Control) Join(ctx context.Context, j Join, files [3]*os.File) error {
	fds := make([]int, 0, len(files))
	for _, f := range files {
		if f != nil {
			fds = append(fds, int(f.Fd()))
		}
	}
	if j.Unified != "" {
		procs, err := os.OpenFile(filepath.Join(j.Unified, "cgroup.procs"), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("open the cgroup: %w", err)
		}
		defer procs.Close()
		fds = append(fds, int(procs.Fd()))
	}
	text, err := c.order(ctx, order{Join: &j}, fds)
	switch {
	case err != nil:
		return err
	case text != "+":
		return errors.New(text)
	}
	return nil
}

// Exec makes the launcher execute a program, and returns after the exec. An error that
// unwraps to a syscall.Errno is the kernel's.
func (c *Control) Exec(ctx context.Context, e Exec) error {
	text, err := c.order(ctx, order{Exec: &e}, nil)
	switch {
	case errors.Is(err, io.EOF): // the exec has closed the socket, or the launcher was killed
		return nil
	case err != nil:
		return err
	}
	return execError(text)
}

// execError returns the error whose text the launcher has sent.
func execError(text string) error {
	for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC, syscall.E2BIG, syscall.ENOTDIR, syscall.ELOOP, syscall.EPERM} {
		if strings.HasSuffix(text, errno.Error()) {
			return errno
		}
	}
	return errors.New(text)
}

// order sends an order and reads the answer to it.
func (c *Control) order(ctx context.Context, o order, files []int) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.ours.SetDeadline(time.Now()) })
	defer stop()
	conn, err := c.ours.SyscallConn()
	if err != nil {
		return "", err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = c.write(int(fd), o, files) }); err != nil {
		return "", err
	}
	if sent != nil {
		return "", fmt.Errorf("order the launcher: %w", sent)
	}
	text, err := bufio.NewReader(c.ours).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET):
		return "", fmt.Errorf("answer of the launcher: %w", err)
	case text == "":
		return "", io.EOF
	}
	return strings.TrimSuffix(text, "\n"), nil
}

// write sends an order in blocking mode. It does not block for long, because the launcher
// reads at once.
func (c *Control) write(fd int, o order, files []int) error {
	if err := unix.SetNonblock(fd, false); err != nil {
		return err
	}
	err := send(fd, o, files)
	return errors.Join(err, unix.SetNonblock(fd, true))
}

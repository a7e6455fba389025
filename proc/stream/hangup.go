package stream

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Hangup says when the stream of a terminal's master ends. While the process runs, EIO means that
// no process has the terminal open at this moment; a service manager or a getty opens it again.
// After the process's end, the stream ends with the bytes that are in the terminal: at EIO, or when
// there are none although a background job has the terminal open. A read finds all bytes that
// were written before it, because the kernel moves them to the master first (n_tty_read).
type Hangup struct{ ended atomic.Bool }

// End is called when the process has ended. It interrupts a read of master, which then
// checks ended.
func (h *Hangup) End(master *os.File) {
	h.ended.Store(true)
	_ = master.SetReadDeadline(time.Unix(1, 0))
}

// ReadOnce reads the bytes that are in the terminal. It returns EAGAIN if the caller has to wait until master
// can be read, and 0 at the end of the stream.
func (h *Hangup) ReadOnce(master int, b []byte) (int, error) {
	for {
		n, err := unix.Read(master, b)
		switch {
		case err == unix.EINTR:
		case (err == unix.EIO || err == unix.EAGAIN) && h.ended.Load():
			return 0, nil
		case err == unix.EIO:
			return 0, unix.EAGAIN
		case err != nil:
			return 0, err
		default:
			return n, nil
		}
	}
}

// Resume lets reads of master wait again after End has interrupted one of them, of which err is the error. It
// reports whether End has.
func Resume(master *os.File, err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && master.SetReadDeadline(time.Time{}) == nil
}

// Terminal reads a terminal's master, which is in the runtime's poller, until the end of its stream.
type Terminal struct {
	Hangup
	Master *os.File
}

// End is called when the process has ended.
func (t *Terminal) End() { t.Hangup.End(t.Master) }

// Read returns io.EOF at the end of the stream.
func (t *Terminal) Read(b []byte) (n int, err error) {
	conn, err := t.Master.SyscallConn()
	if err != nil {
		return 0, err
	}
	for {
		var readErr error
		err := conn.Read(func(fd uintptr) bool {
			n, readErr = t.ReadOnce(int(fd), b)
			return readErr != unix.EAGAIN
		})
		switch {
		case Resume(t.Master, err):
		case err != nil:
			return 0, err
		case readErr != nil:
			return 0, os.NewSyscallError("read", readErr)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

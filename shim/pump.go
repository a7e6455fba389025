package shim

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
)

const (
	// pipeSize is the capacity of a new pipe, and widePipe that of a pipe with much to carry:
	// then each splice moves four times as much, for a fifth of the processor time.
	pipeSize = 64 << 10
	widePipe = 256 << 10
	// bufferSize is the size of a buffer for streams that cannot be spliced. A read from a
	// terminal returns 4 KiB at most.
	bufferSize = 16 << 10
)

// buffers lends memory to pumps that cannot splice. A pump has a buffer only while bytes
// pass through it, so idle streams use no memory.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{pool: sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

// pump moves one stream until its source ends or is closed. It does not stop reading when
// its sink fails, because a process must not block or be killed if its log fails
// (containerd#11511).
type pump struct {
	src     *os.File // in the runtime's poller
	dst     *sink
	buffers *buffers
	own     *owner // of the stream
	// hangup is set if src is a terminal's master; it interprets EIO.
	hangup *stream.Hangup
	wide   bool // src and dst have widePipe
	// refused is set if splice has returned errNoSplice.
	refused bool
	lost    int // bytes that the file did not take since its last write that succeeded
	// holding is set while bytes of src may be in this process's memory.
	holding atomic.Bool
	// ended is set if the client sees the end of this stream, or will when it opens the fifo.
	ended atomic.Bool
}

// run moves the stream. If a pipe fails, the rest of the stream is thrown away.
func (p *pump) run() {
	err := p.move(p.carry)
	var w *writeError
	if errors.As(err, &w) && !errors.Is(err, os.ErrClosed) {
		p.own.log(err).Errorf("output to %s: what follows is thrown away", p.dst.name)
		_ = p.move(p.drop) // until the source ends; the error does not matter
	}
}

// writeError is a failure of the sink, not of the source.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

// move repeats step until the end of the source (nil), its closing
// (os.ErrClosed), or a failure of the sink (a writeError).
func (p *pump) move(step func() error) error {
	for {
		err := step()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case stream.Resume(p.src, err):
		default:
			return err
		}
	}
}

// carry moves the bytes that are there: inside the kernel if it can, and otherwise through a buffer.
func (p *pump) carry() error {
	if p.dst.splice && p.hangup == nil && !p.refused {
		err := p.splice()
		if !errors.Is(err, errNoSplice) {
			return err
		}
		p.refused = true
	}
	return p.copy()
}

// errNoSplice is the error of splice if splice(2) is not to be had: a seccomp profile around
// containerd denies the call, or the kernel cannot move these files' bytes.
var errNoSplice = errors.New("splice(2) is refused")

// splice waits for bytes and moves them inside the kernel. If the kernel refuses that, it returns
// errNoSplice and has moved nothing.
//
// The wait for dst is nested in the wait for src, so no descriptor can be closed and its
// number reused while the other one is waited for. Closing either file ends both waits. The
// poller remembers a readiness from before an attempt, so no wake-up is lost between the
// attempt and the wait.
func (p *pump) splice() error {
	src, err := p.src.SyscallConn()
	if err != nil {
		return err
	}
	dst, err := p.dst.w.SyscallConn()
	if err != nil {
		return &writeError{err}
	}
	var n int64
	var moveErr, dstErr error
	err = src.Read(func(from uintptr) bool {
		dstErr = dst.Write(func(to uintptr) bool {
			var full bool
			n, full, moveErr = spliceOnce(int(from), int(to))
			return !full
		})
		return dstErr != nil || moveErr != unix.EAGAIN
	})
	switch {
	case err != nil:
		return waited(p.src, err)
	case dstErr != nil:
		return &writeError{waited(p.dst.w, dstErr)}
	case moveErr == unix.ENOSYS || moveErr == unix.EPERM || moveErr == unix.EINVAL:
		return errNoSplice
	case moveErr != nil:
		return &writeError{os.NewSyscallError("splice", moveErr)}
	case n == 0:
		return io.EOF
	case n > pipeSize/2 && !p.wide:
		p.widen(src, dst)
	}
	return nil
}

// widen gives both pipes a larger capacity when the process has nearly filled one of usual
// size. Most streams carry a few lines and are never widened. If the kernel refuses, the
// stream goes on as it is.
func (p *pump) widen(src, dst syscall.RawConn) {
	p.wide = true
	for _, c := range []syscall.RawConn{src, dst} {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe) })
	}
}

// waited takes the error with which a wait for f has ended. It returns os.ErrClosed if f was
// closed during the wait, and err otherwise. It is needed because a closed SyscallConn
// returns an error that errors.Is cannot recognise.
func waited(f *os.File, err error) error {
	if _, closed := f.Read(nil); errors.Is(closed, os.ErrClosed) {
		return os.ErrClosed
	}
	return err
}

// spliceOnce moves the bytes that are there. full reports whether the sink was full. splice(2)
// does not tell: it returns EAGAIN for an empty source and for a full sink alike, and for a
// full sink even at the end of the source. If the source is readable after EAGAIN, its bytes
// may have arrived only then. So the sink counts as full only after a second EAGAIN: a wait
// for room in a sink that is not full would never end.
func spliceOnce(from, to int) (n int64, full bool, err error) {
	n, err = spliceRetry(from, to)
	if err != unix.EAGAIN || !readable(from) {
		return n, false, err
	}
	n, err = spliceRetry(from, to)
	return n, err == unix.EAGAIN, err
}

func spliceRetry(from, to int) (int64, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, widePipe, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// readable reports whether a pipe has bytes or is at its end.
func readable(fd int) bool { return polls(fd) != 0 }

// polls returns what poll(2) says about reading at this moment, or 0 if it fails.
func polls(fd int) int16 {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(p, 0)
		if err != unix.EINTR {
			return p[0].Revents
		}
	}
}

// copy moves the bytes that are there, through a borrowed buffer.
func (p *pump) copy() error {
	return p.read(func(b []byte) error {
		err := p.dst.write(b)
		if p.dst.file && !errors.Is(err, os.ErrClosed) {
			p.count(len(b), err)
			return nil
		}
		if err != nil {
			return &writeError{err}
		}
		return nil
	})
}

// count counts the bytes that a file did not take, and logs the first failure of a row and its end.
func (p *pump) count(n int, err error) {
	switch {
	case err != nil && p.lost == 0:
		p.own.log(err).Errorf("output to %s is thrown away until it can be written", p.dst.name)
		fallthrough
	case err != nil:
		p.lost += n
	case p.lost > 0:
		p.own.log(nil).Warnf("output to %s goes on: up to %d bytes before this are lost", p.dst.name, p.lost)
		p.lost = 0
	}
}

// end tells the client of an output that its source and the process have ended.
func (p *pump) end() {
	closed := p.dst.done()
	p.ended.Store(true)
	if !closed {
		p.dst.awaitReader()
	}
}

// onTheWay reports whether there are bytes that were written to src and that the client of a fifo
// has not read, or the end of src that it has not been told of. The process of src has ended.
func (p *pump) onTheWay() bool {
	switch {
	case p.src == nil || !p.dst.fifo:
		return false
	case p.ended.Load():
		return p.dst.unread()
	case p.hangup != nil:
		return true // a terminal ends with its process
	}
	return pending(p.src) != 0 || p.holding.Load() || p.dst.unread()
}

// pending returns what poll(2) says about reading f, or 0 if f is closed.
func pending(f *os.File) (events int16) {
	_ = proc.Control(f, func(fd int) error { events = polls(fd); return nil })
	return events
}

// drop throws away the bytes that are there.
func (p *pump) drop() error {
	return p.read(func([]byte) error { return nil })
}

// read waits for bytes, and only then borrows a buffer for them.
func (p *pump) read(use func([]byte) error) error {
	src, err := p.src.SyscallConn()
	if err != nil {
		return err
	}
	var buf *[bufferSize]byte
	var n int
	var readErr error
	defer p.holding.Store(false)
	err = src.Read(func(fd uintptr) bool {
		p.holding.Store(true)
		buf = p.buffers.pool.Get().(*[bufferSize]byte)
		n, readErr = p.readOnce(int(fd), buf[:])
		if readErr == unix.EAGAIN {
			p.buffers.pool.Put(buf)
			buf = nil
			p.holding.Store(false)
			return false
		}
		return true
	})
	if buf != nil {
		defer p.buffers.pool.Put(buf)
	}
	switch {
	case err != nil:
		return waited(p.src, err)
	case readErr != nil:
		return os.NewSyscallError("read", readErr)
	case n == 0:
		return io.EOF
	}
	return use(buf[:n])
}

func (p *pump) readOnce(fd int, b []byte) (int, error) {
	if p.hangup != nil {
		return p.hangup.ReadOnce(fd, b)
	}
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

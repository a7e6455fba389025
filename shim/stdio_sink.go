package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// sink is the destination of output. Both streams of a process may share one.
type sink struct {
	name string
	w    *os.File // nil: output is thrown away, or goes to log
	log  *boundedLog
	fifo bool // w is a client's fifo
	// borrowed is set if the sink must not close w.
	borrowed bool
	// splice is set if w is a pipe or fifo in the poller.
	splice bool
	// file is set if w or log is a file. A write that fails says nothing about the next one: its
	// disk may have room again, and the shim descriptors.
	file bool

	mu sync.Mutex
	// hold keeps a fifo open for reading. If a client closes its end, the process gets no
	// SIGPIPE, and the written bytes wait for the next client
	// (requirements.md#I1). It is nil while the sink waits for a reader.
	hold    *os.File
	users   int  // streams that still write
	closed  bool // close was called
	waiting bool // awaitReader is to be called, or waits
}

// openSink opens a path or file:// target. It waits for the client of a fifo until clients, and until
// ctx is done.
func openSink(ctx context.Context, t target, clients time.Time) (*sink, error) {
	if t.kind == toFile {
		return openLogFile(t)
	}
	fifo, err := isFifo(t.path)
	if err != nil {
		return nil, err
	}
	if !fifo {
		w, err := openPolled(t.path, unix.O_WRONLY|unix.O_APPEND) // a terminal that takes nothing must not hold up close
		if err != nil {
			return nil, err
		}
		return &sink{name: t.path, w: w, file: true}, nil
	}
	ctx, cancel := context.WithDeadline(ctx, clients)
	defer cancel()
	hold, w, err := openFifo(ctx, t.path)
	if err != nil {
		return nil, err
	}
	return &sink{name: t.path, w: w, hold: hold, fifo: true, splice: true}, nil
}

// openFifo opens both ends of a fifo for output when a client has opened it for reading, or
// when ctx is done. containerd and its clients open their end while they wait for the answer of
// Create. If the process has ended before they have, they give up, and its output is lost
// (containerd#8643).
func openFifo(ctx context.Context, path string) (hold, w *os.File, err error) {
	w, err = openPolled(path, unix.O_WRONLY)
	switch {
	case errors.Is(err, unix.ENXIO): // no reader
		return awaitClient(ctx, path)
	case err != nil:
		return nil, nil, err
	}
	if hold, err = openPlain(path, unix.O_RDONLY); err != nil {
		proc.CloseFiles(w)
		return nil, nil, err
	}
	return hold, w, nil
}

// awaitClient is openFifo for a fifo without a reader. Only open(2) can wait for one, and the
// shim's own reader ends the wait, even if the fifo has no name any more.
func awaitClient(ctx context.Context, path string) (hold, w *os.File, err error) {
	at, err := open(path, unix.O_PATH)
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(at)
	fifo := fmt.Sprintf("/proc/self/fd/%d", at)
	opened := make(chan struct{})
	var writer int
	var writerErr error
	go func() {
		defer close(opened)
		writer, writerErr = open(fifo, unix.O_WRONLY)
	}()
	select {
	case <-opened:
	case <-ctx.Done():
	}
	if hold, err = openPlain(fifo, unix.O_RDONLY); err != nil {
		go func() {
			<-opened
			_ = unix.Close(writer)
		}()
		return nil, nil, err
	}
	<-opened
	if writerErr == nil {
		writerErr = unix.SetNonblock(writer, true)
	}
	if writerErr != nil {
		proc.CloseFiles(hold)
		return nil, nil, fmt.Errorf("open %s: %w", path, writerErr)
	}
	return hold, polled(writer, path), nil
}

// logMode is the mode of log files. They are opened without waiting for the reader of a fifo.
const (
	logMode  = 0o644
	logFlags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NONBLOCK | unix.O_NOCTTY
)

// openLogFile opens the file of a file:// URI (requirements.md#I3).
func openLogFile(t target) (*sink, error) {
	if err := os.MkdirAll(filepath.Dir(t.path), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the log file: %w", err)
	}
	s := &sink{name: t.path, file: true}
	var err error
	if t.bound != (bound{}) {
		s.log, err = openBounded(t.path, t.bound)
	} else {
		s.w, err = os.OpenFile(t.path, logFlags, logMode)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// write writes bytes that cannot be spliced.
func (s *sink) write(b []byte) error {
	switch {
	case s.log != nil:
		return s.log.write(b)
	case s.w != nil:
		_, err := s.w.Write(b)
		return err
	}
	return nil
}

// closeTarget closes the file that is written to.
func (s *sink) closeTarget() {
	proc.CloseFiles(s.w)
	if s.log != nil {
		s.log.close()
	}
}

// use counts a stream that will write.
func (s *sink) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// done is called when a stream has ended. After the last stream, done closes the sink,
// and the reader sees the end of the output. If a fifo has no reader at that moment, done returns false and
// does not close it: the caller then calls awaitReader.
func (s *sink) done() (closed bool) {
	s.mu.Lock()
	s.users--
	last := s.users == 0 && !s.borrowed
	hold := s.hold
	s.waiting = last && s.fifo && !s.closed
	wait := s.waiting
	if wait {
		s.hold = nil
	}
	s.mu.Unlock()
	if wait {
		proc.CloseFiles(hold) // or the fifo would have a reader
		if !s.openedBy(unix.O_NONBLOCK) {
			return false
		}
	}
	if last {
		s.closeTarget()
	}
	return true
}

// awaitReader closes a fifo when it has a reader, or close is called, so that the fifo keeps its bytes:
// a client may open its end late, or again after a restart of containerd. If the fifo had no writer, the
// client's open would wait for ever. Only open(2) can wait for a reader. It blocks a thread, but few
// fifos are without a reader when their process ends.
func (s *sink) awaitReader() {
	s.openedBy(0)
	s.closeTarget()
}

// openedBy opens the fifo for writing and closes it again. It returns false if flags is O_NONBLOCK and the fifo
// has no reader, and otherwise waits for one. Then the sink has a reading end again, by which unread looks at the fifo.
func (s *sink) openedBy(flags int) (read bool) {
	read = true
	s.reopen(func(path string) {
		fd, err := open(path, unix.O_WRONLY|flags)
		if errors.Is(err, unix.ENXIO) {
			read = false
			return
		}
		if err == nil {
			_ = unix.Close(fd)
		}
		hold, _ := openPlain(path, unix.O_RDONLY) // nil: Settle does not wait for the client
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			proc.CloseFiles(hold)
			return
		}
		s.hold = hold
	})
	return read
}

// unread reports whether a fifo has bytes that its client has not read.
func (s *sink) unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.hold
	if f == nil {
		f = s.w // the sink waits for a reader
	}
	n := 0
	_ = proc.Control(f, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD's other name
		return err
	})
	return n > 0 // a fifo that is closed has nothing for its client
}

// reopen calls f with a path of the fifo that works even if the client has
// removed the file. The descriptor in the path stays valid until f returns.
func (s *sink) reopen(f func(path string)) {
	conn, err := s.w.SyscallConn()
	if err != nil {
		return
	}
	// An error means that close was called before: there is nothing to wait for.
	_ = conn.Control(func(fd uintptr) { f(fmt.Sprintf("/proc/self/fd/%d", fd)) })
}

// close closes everything. Pumps that wait for room return, and so does awaitReader.
func (s *sink) close() {
	s.mu.Lock()
	s.closed = true
	wait := s.waiting
	s.mu.Unlock()
	var r *os.File
	if wait {
		s.reopen(func(path string) { r, _ = openPlain(path, unix.O_RDONLY) })
	}
	// This returns once awaitReader, which opening r has ended, no longer uses w.
	s.closeTarget()
	proc.CloseFiles(s.hold)
	proc.CloseFiles(r)
}

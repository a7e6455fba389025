package shim

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// stdinPause is how long the input of a created app waits for Start. After that the shim
// reads the input, for clients that write before Start and expect a reader. On a busy
// machine, clients such as ctr get the answer to Create tenths of a second late.
const stdinPause = time.Second

// stdin is a process's input. The shim opens a client's fifo when the process exists and is
// about to be started, not earlier. Until then the client's own open for writing waits, in
// the background. ctr and nerdctl depend on that: at the end of their own input they call
// CloseIO for their task, but if Create was not answered yet, they have no task and never
// call CloseIO. If the fifo were open during Create, a short input would end before the
// answer.
type stdin struct {
	// child is what the process inherits: its end of a pipe, or a file that is not a
	// fifo. It is nil with a terminal.
	child *os.File
	// feeder is this process's end of that pipe.
	feeder *os.File
	// fifo refers to the client's fifo and is neither open for reading nor for writing. It is
	// nil if the source is another kind of file.
	fifo *os.File
	// src is the file to read from; nil until it is open.
	src *os.File
	// hold keeps a fifo open for reading, so that clients may close and reopen it until the
	// process is deleted.
	hold *os.File
	// writer keeps a fifo open for writing, so that it reports no end of file when a client
	// closes its end. Only CloseStdin closes writer (requirements.md#I2).
	writer *os.File
	ended  bool // CloseStdin was called
}

// openStdin finds the input that a target names.
func openStdin(t target, terminal bool) (s stdin, err error) {
	switch t.kind {
	case toNothing:
		return s, nil
	case toFile, toLogger:
		return s, fmt.Errorf("standard input can only be a fifo or a file's path: %w", errdefs.ErrInvalidArgument)
	}
	fifo, err := isFifo(t.path)
	switch {
	case err != nil:
		return s, err
	case !fifo && terminal:
		s.src, err = openPolled(t.path, unix.O_RDONLY)
		return s, err
	case !fifo:
		s.child, err = openPlain(t.path, unix.O_RDONLY)
		return s, err
	}
	fd, err := open(t.path, unix.O_PATH)
	if err != nil {
		return s, err
	}
	s.fifo = os.NewFile(uintptr(fd), t.path)
	if !terminal {
		s.child, s.feeder, err = pipe(inherited, ours)
	}
	return s, err
}

// open opens a fifo for reading. Without a terminal it goes into the pipe.
func (s *stdin) open() (err error) {
	// Use the descriptor, because the client may have removed the fifo from its directory.
	path := fmt.Sprintf("/proc/self/fd/%d", s.fifo.Fd())
	if s.hold, err = openPlain(path, unix.O_RDONLY); err != nil {
		return err
	}
	if !s.ended {
		if s.writer, err = openPlain(path, unix.O_WRONLY); err != nil {
			return err
		}
	}
	// Open src last: this lets the client's open for writing return.
	s.src, err = openPolled(path, unix.O_RDONLY)
	return err
}

func (s *stdin) close() { proc.CloseFiles(s.child, s.feeder, s.fifo, s.src, s.hold, s.writer) }

// feed opens the client's fifo, as soon as the process exists. It does not block.
func (s *stdio) feed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = true
	s.feedLocked()
}

// feedLocked starts to move the input, once, if the process exists and the input is wanted.
func (s *stdio) feedLocked() {
	if !s.begun || !s.wanted || s.closed || s.fed {
		return
	}
	s.fed = true
	if s.in.fifo != nil {
		if err := s.in.open(); err != nil {
			// The process then has no input, as if its client had closed the fifo.
			s.own.log(err).Error("open stdin")
			proc.CloseFiles(s.in.feeder)
			return
		}
	}
	switch {
	case s.in.src == nil:
	case s.hangup != nil:
		if s.console == nil {
			return
		}
		p := &pump{src: s.in.src, dst: &sink{name: "terminal", w: s.console, borrowed: true}, buffers: s.buffers, own: s.own}
		s.running.Go(p.run)
	default:
		p := &pump{src: s.in.src, dst: &sink{name: "stdin", w: s.in.feeder, splice: true}, buffers: s.buffers, own: s.own}
		s.running.Go(p.feed)
	}
}

// feed moves a process's input. At the end of the input it closes the shim's end of the
// pipe, so that the process sees the end of file. It stops early when no process reads the
// pipe any more.
func (p *pump) feed() {
	defer proc.CloseFiles(p.dst.w)
	err := p.move(p.carry)
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, os.ErrClosed) {
		p.own.log(err).Error("stdin")
	}
}

// CloseStdin ends the process's input, although the client may still have its own end open.
func (s *stdio) CloseStdin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in.ended = true
	proc.CloseFiles(s.in.writer)
	s.wanted = true // the client calls CloseIO only after the answer to its Create
	s.feedLocked()
	return nil
}

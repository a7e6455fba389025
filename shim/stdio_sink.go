package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// sink is where output goes. Both streams of a process may share one.
type sink struct {
	name string
	w    *os.File // nil: output is thrown away
	// hold keeps a fifo open for reading, so that a client that goes away costs
	// the process no SIGPIPE, and what was written waits for the next one
	// (requirement I1). It stays open until the process is deleted.
	hold *os.File
	// borrowed says that w is closed by somebody else.
	borrowed bool
	// splice says that w is a pipe or fifo in the poller.
	splice bool

	mu    sync.Mutex
	users int // streams that still write
}

// openSink opens a path or file:// target.
func openSink(t target) (*sink, error) {
	if t.kind == toFile {
		return openLogFile(t.path)
	}
	fifo, err := isFifo(t.path)
	if err != nil {
		return nil, err
	}
	if !fifo {
		w, err := openPlain(t.path, unix.O_WRONLY|unix.O_APPEND)
		if err != nil {
			return nil, err
		}
		return &sink{name: t.path, w: w}, nil
	}
	// With a reader in place, ours, opening for writing needs no other one.
	hold, err := openPlain(t.path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	w, err := openPolled(t.path, unix.O_WRONLY)
	if err != nil {
		closeAll(hold)
		return nil, err
	}
	return &sink{name: t.path, w: w, hold: hold, splice: true}, nil
}

// openLogFile opens the file of a file:// URI (requirement I3).
func openLogFile(path string) (*sink, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the log file: %w", err)
	}
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &sink{name: path, w: w}, nil
}

// use counts a stream that will write.
func (s *sink) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

// done is called when a stream has ended. After the last one the reader sees the
// end.
func (s *sink) done() {
	s.mu.Lock()
	s.users--
	last := s.users == 0 && !s.borrowed
	s.mu.Unlock()
	if last {
		closeAll(s.w)
	}
}

// close gives everything back. Streams that wait to write return.
func (s *sink) close() { closeAll(s.w, s.hold) }

package shim

import (
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// stdin is a process's input.
//
// Without a terminal the process reads the client's fifo itself. That is what a
// pipe with a copier behind it would look like, for the client and for the
// process, and needs neither.
type stdin struct {
	// child is what the process inherits; nil with a terminal.
	child *os.File
	// src is what a pump reads for a terminal; nil without.
	src *os.File
	// hold keeps a fifo open for reading, so that a client may come and go as
	// long as the process is not deleted.
	hold *os.File
	// writer keeps a fifo from reporting the end of file when a client goes
	// away. CloseStdin alone closes it (requirement I2).
	writer *os.File
}

// openStdin opens the input that a target names.
func openStdin(t target, terminal bool) (s stdin, err error) {
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	switch t.kind {
	case toNothing:
		return s, nil
	case toFile, toLogger:
		return s, fmt.Errorf("standard input can only be a fifo or a file's path: %w", errdefs.ErrInvalidArgument)
	}
	if terminal {
		s.src, err = openPolled(t.path, unix.O_RDONLY)
	} else {
		s.child, err = openPlain(t.path, unix.O_RDONLY)
	}
	if err != nil {
		return s, err
	}
	fifo, err := isFifo(t.path)
	if err != nil || !fifo {
		return s, err
	}
	if !terminal {
		if s.hold, err = openPlain(t.path, unix.O_RDONLY); err != nil {
			return s, err
		}
	}
	s.writer, err = openPlain(t.path, unix.O_WRONLY)
	return s, err
}

func (s *stdin) close() { closeAll(s.child, s.src, s.hold, s.writer) }

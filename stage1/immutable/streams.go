package immutable

import (
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Streams are the files that stage 0 gives a process as descriptors 0, 1 and 2: the
// client's files, or a terminal whose master stage 0 keeps.
type Streams struct {
	Files  [3]*os.File
	own    []*os.File
	master *os.File
}

// OpenStreams takes the client's files, or makes a terminal.
func OpenStreams(stdio [3]*os.File, terminal bool, p *specs.Process) (*Streams, error) {
	s := &Streams{Files: stdio}
	if terminal {
		if err := s.openTerminal(p); err != nil {
			s.Close()
			return nil, fmt.Errorf("make a terminal: %w", err)
		}
		return s, nil
	}
	for i, f := range s.Files {
		if f != nil {
			continue
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.Files[i], s.own = null, append(s.own, null)
	}
	return s, nil
}

func (s *Streams) openTerminal(p *specs.Process) error {
	master, slave, err := proc.OpenTerminal(unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	s.master = os.NewFile(uintptr(master), "pty master")
	f := os.NewFile(uintptr(slave), "pty slave")
	s.Files, s.own = [3]*os.File{f, f, f}, append(s.own, f)
	if p != nil && p.ConsoleSize != nil {
		size := &unix.Winsize{Row: uint16(p.ConsoleSize.Height), Col: uint16(p.ConsoleSize.Width)}
		if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size); err != nil {
			return err
		}
	}
	if p != nil && p.User.UID != 0 {
		return f.Chown(int(p.User.UID), -1)
	}
	return nil
}

// Take returns the master, which the caller then owns.
func (s *Streams) Take() *os.File {
	m := s.master
	s.master = nil
	return m
}

// Close closes stage 0's own files. Call it when the process has been started with them.
func (s *Streams) Close() {
	proc.CloseFiles(append(s.own, s.master)...)
	s.own, s.master = nil, nil
}

// Package journal writes and reads a pod's journal: a JSON line for each call of an
// entrypoint of the pod's stage1. docs/layout.md describes the file.
//
// The package knows no stage1 and makes no call. Lines are appended by the processes that
// make calls, at the same time, and read by people and by rktctl at any time.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Names of the files, and the limit of a pod's journal. The number of execs is not limited,
// so when the file is full, it is renamed to Old, which replaces the previous one, and a new
// file is begun.
const (
	File = "journal"
	Old  = "journal.old"

	size = 256 << 10 // bytes; the last line may exceed it
)

// Poststop is the Entry.Entrypoint of a poststop hook that stage 0 has killed. Argv has its path.
const Poststop abi.Entrypoint = "poststop"

// Ready is the Entry.State of a call that goes on.
const Ready = "ready"

// Entry is a line of a pod's journal: the outcome of one call of an entrypoint, the unknown
// fields of a document, or the beginning or end of a debug app. A call that stays, such as `run`, has two entries: one for
// its readiness and one for its end.
type Entry struct {
	Time       time.Time      `json:"time"` // when it was called
	Entrypoint abi.Entrypoint `json:"entrypoint,omitempty"`
	Argv       []string       `json:"argv,omitempty"` // shortened
	App        string         `json:"app,omitempty"`
	Exec       string         `json:"exec,omitempty"`
	State      string         `json:"state,omitempty"`  // "ready", or empty if the call has ended
	Served     bool           `json:"served,omitempty"` // the call was made on the stage1's socket
	PID        int            `json:"pid,omitempty"`
	Millis     float64        `json:"ms"`              // since Time
	Code       int            `json:"code"`            // as EntrypointError has it
	Error      string         `json:"error,omitempty"` // of a call that failed, or the text that it has written
	// Traceparent is the trace context that the call has got, and Parent the span of the client's
	// call. Only the first entry of a call has them.
	Traceparent abi.Traceparent `json:"traceparent,omitempty"`
	Parent      string          `json:"parent,omitempty"`
	// Unknown are fields of a client's document that the OCI runtime spec does not have and
	// that were ignored. An entry with them belongs to no call.
	Unknown []string `json:"unknown,omitempty"`
	// Debug says that an operator debugs an app. Such an entry belongs to no call. There are
	// two: one with the state "ready" at the beginning, and one with the exit code.
	Debug *Debug `json:"debug,omitempty"`
}

// WithoutArguments returns the entry without the arguments of the call, which may be secret.
func (e Entry) WithoutArguments() Entry {
	e.Argv = nil
	return e
}

// Debug says who debugs an app, and with which image.
type Debug struct {
	App    string `json:"app"`             // id of the target
	UID    uint32 `json:"uid"`             // of the user's login session; 4294967295: there is none
	Login  string `json:"login,omitempty"` // name, as rktctl knows it
	PID    int    `json:"pid"`             // of rktctl
	Image  string `json:"image"`           // reference
	Digest string `json:"digest"`
}

// Path returns the path of the journal of the pod in a directory.
func Path(podDir string) string { return filepath.Join(podDir, File) }

// Writer appends to the journal of one pod and keeps the file open until Close. The zero value
// has no file yet. The methods may be called concurrently, also by the Writers of other
// processes.
type Writer struct {
	// mu is held while a line is written, so that Close waits for it. A write to a local file
	// does not block.
	mu         sync.Mutex
	file       *os.File // nil if none is open
	dev, inode uint64   // of file
	closed     bool
}

// Append appends to the journal of the pod in a directory, and does not keep the file open.
func Append(podDir string, e Entry) error {
	w := Writer{closed: true}
	return w.Append(podDir, e)
}

// Append writes one line in one write, so that lines of concurrent calls stay whole. After
// Close it opens the file for this line only. The error is fs.ErrNotExist if the pod has gone.
func (w *Writer) Append(podDir string, e Entry) error {
	text, err := plainjson.Encode(e)
	if err != nil {
		return err
	}
	full, err := w.write(Path(podDir), append(text, '\n'))
	if full && err == nil {
		err = rotate(podDir)
	}
	return err
}

// write writes a line, and reports whether the journal is full.
func (w *Writer) write(path string, line []byte) (full bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, err := w.openLocked(path)
	if err != nil {
		return false, err
	}
	_, err = w.file.Write(line)
	if w.closed {
		err = errors.Join(err, w.dropLocked())
	}
	return before+int64(len(line)) >= size, err
}

// openLocked opens the journal at a path and returns its size. Another process may have rotated
// the open journal, or removed it with the pod, so the path counts.
func (w *Writer) openLocked(path string) (size int64, err error) {
	var st unix.Stat_t
	if w.file != nil && unix.Lstat(path, &st) == nil && uint64(st.Dev) == w.dev && st.Ino == w.inode {
		return st.Size, nil
	}
	if err := w.dropLocked(); err != nil {
		return 0, err
	}
	if w.file, err = proc.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return 0, err
	}
	if err := unix.Fstat(int(w.file.Fd()), &st); err != nil {
		return 0, errors.Join(err, w.dropLocked())
	}
	w.dev, w.inode = uint64(st.Dev), st.Ino
	return st.Size, nil
}

func (w *Writer) dropLocked() error {
	f := w.file
	w.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// Close closes the file. A later Append opens it for one line.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.dropLocked()
}

// rotate begins a new journal if this one is full. It locks the file, and checks that the
// path still leads to it. Otherwise two callers could rotate one after the other, and the
// second would replace the old journal by one that has hardly begun. The lock belongs to a
// descriptor that no other caller has.
func rotate(podDir string) error {
	f, err := proc.OpenFile(Path(podDir), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another caller has rotated, or the pod has gone
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() < size {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // another caller is rotating
	}
	current, err := os.Stat(Path(podDir))
	if err != nil || !os.SameFile(st, current) {
		return nil // another caller has rotated
	}
	return os.Rename(Path(podDir), filepath.Join(podDir, Old))
}

// Read returns the calls of a pod's entrypoints in the order in which they ended, as far back
// as the journal goes. It returns none for a pod without calls.
func Read(podDir string) ([]Entry, error) {
	root, err := os.OpenRoot(podDir)
	if err != nil {
		return nil, fmt.Errorf("journal of pod %s: %w", filepath.Base(podDir), err)
	}
	defer root.Close()
	return ReadIn(root)
}

// ReadIn is Read for an open pod directory, which may be renamed meanwhile.
func ReadIn(podDir *os.Root) ([]Entry, error) {
	var entries []Entry
	for _, name := range []string{Old, File} {
		text, err := read(podDir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("journal of pod %s: %w", filepath.Base(podDir.Name()), err)
		}
		entries = append(entries, Parse(text)...)
	}
	return entries, nil
}

func read(podDir *os.Root, name string) ([]byte, error) {
	f, err := podDir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 2*size))
}

// Parse reads lines. A line that is not an Entry, such as one that a crash has
// cut off, is skipped.
func Parse(text []byte) []Entry {
	var entries []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && (e.Entrypoint != "" || len(e.Unknown) > 0 || e.Debug != nil) {
			entries = append(entries, e)
		}
	}
	return entries
}

// Follower reads a journal as it grows. It reads on after the pod's directory was renamed or
// removed.
type Follower struct {
	dir  *os.Root
	file *os.File // nil before there is a journal
	rest []byte   // of a line whose end has not been read yet
	old  bool     // the old journal was read
}

// Follow returns a Follower of the journal in an open pod directory, which Close closes.
func Follow(podDir *os.Root) *Follower { return &Follower{dir: podDir} }

// Next returns the entries that were written since the last call. The first call returns all.
func (f *Follower) Next() ([]Entry, error) {
	var entries []Entry
	if !f.old {
		text, err := read(f.dir, Old)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		f.old, entries = true, Parse(text)
	}
	for {
		if f.file != nil {
			text, err := io.ReadAll(f.file)
			if err != nil {
				return entries, err
			}
			f.rest = append(f.rest, text...)
			end := bytes.LastIndexByte(f.rest, '\n') + 1
			entries = append(entries, Parse(f.rest[:end])...)
			f.rest = bytes.Clone(f.rest[end:])
		}
		if again, err := f.reopen(); !again || err != nil {
			return entries, err
		}
	}
}

// reopen opens the journal if it was begun since, and reports whether it has.
func (f *Follower) reopen() (bool, error) {
	now, err := f.dir.Open(File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if f.file != nil {
		a, errA := f.file.Stat()
		b, errB := now.Stat()
		if err := errors.Join(errA, errB); err != nil || os.SameFile(a, b) {
			return false, errors.Join(err, now.Close())
		}
		_ = f.file.Close()
	}
	f.file, f.rest = now, nil
	return true, nil
}

// Close closes the Follower.
func (f *Follower) Close() error {
	if f.file != nil {
		_ = f.file.Close()
	}
	return f.dir.Close()
}

package stage1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containerd/log"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"golang.org/x/sys/unix"
)

// Limits of a pod's journal. The number of execs is not limited, so when the file is full,
// it is renamed to journal.old, which replaces the previous one, and a new file is begun.
const (
	journalFile = "journal"
	journalOld  = "journal.old"
	journalSize = 256 << 10 // bytes; the last line may exceed it
	journalArgs = 16        // arguments that are kept of a call
	journalArg  = 256       // bytes that are kept of each
	journalText = 1024      // bytes that are kept of an error, from its end
)

// StateReady is the Entry.State of a call that goes on.
const StateReady = "ready"

// Entry is a line of a pod's journal: the outcome of one call of an entrypoint, or the
// unknown fields of a document. A call that stays, such as `run`, has two entries: one for
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
	// Unknown are fields of a client's document that the OCI runtime spec does not have and
	// that were ignored. An entry with them belongs to no call.
	Unknown []string `json:"unknown,omitempty"`
}

func journalPath(podDir string) string { return filepath.Join(podDir, journalFile) }

// entry returns an entry with the fields that every call has.
func (k *Call) entry() Entry {
	e := Entry{
		Time: k.Began, Entrypoint: k.Entrypoint, App: k.Request.App, Exec: k.Request.Exec,
		Millis: float64(time.Since(k.Began).Microseconds()) / 1000,
	}
	e.Argv = append(e.Argv, k.Stage1.Entrypoint(k.Entrypoint))
	for _, arg := range k.Args[:min(len(k.Args), journalArgs)] {
		e.Argv = append(e.Argv, abi.Printable(strings.ToValidUTF8(arg[:min(len(arg), journalArg)], "")))
	}
	if k.Child != nil {
		e.PID = k.Child.PID()
	}
	e.Served = k.asked != nil
	return e
}

// Journal writes a call that has not ended to the journal.
func (k *Call) Journal(state string) {
	e := k.entry()
	e.State = state
	k.write(e)
}

// record writes a call that has succeeded to the journal, with its text from RKT_ERROR_FD.
func (k *Call) record(words string) {
	e := k.entry()
	e.Code, e.Error = k.Exit.Code, lastOf(words, journalText)
	k.write(e)
}

func (k *Call) recordFailure(err *EntrypointError) {
	e := k.entry()
	e.Code, e.Error = err.Code, lastOf(abi.Printable(err.Text), journalText)
	k.write(e)
}

// write appends to the journal. If that fails, it logs the error, because nothing else
// depends on the journal.
func (k *Call) write(e Entry) {
	err := appendEntry(k.Dir, e)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the pod has gone with its journal
		log.L.WithError(err).Warnf("stage1 %s: journal of a pod", k.Stage1.name)
	}
}

// NoteUnknown writes ignored fields of a client's document to the journal.
func (s *Stage1) NoteUnknown(c pod.Call, fields []string) {
	k := &Call{Stage1: s, Call: c}
	k.write(Entry{Time: time.Now(), App: c.Request.App, Exec: c.Request.Exec, Unknown: fields})
}

// lastOf returns the end of a text.
func lastOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return "…" + s
}

// appendEntry writes one line in one write, so that lines of concurrent calls
// stay whole.
func appendEntry(dir string, e Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(journalPath(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = rotate(dir, f)
	}
	return errors.Join(err, f.Close())
}

// rotate begins a new journal if this one is full. It locks the file, and checks that the
// path still leads to it. Otherwise two processes could rotate one after the other, and the
// second would replace the old journal by one that has hardly begun.
func rotate(dir string, f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Size() < journalSize {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // another process is rotating
	}
	current, err := os.Stat(journalPath(dir))
	if err != nil || !os.SameFile(st, current) {
		return nil // another process has rotated
	}
	return os.Rename(journalPath(dir), filepath.Join(dir, journalOld))
}

// ReadJournal returns the calls of a pod's entrypoints in the order in which they ended, as
// far back as the journal goes. It returns none for a pod without calls.
func ReadJournal(podDir string) ([]Entry, error) {
	var entries []Entry
	for _, name := range []string{journalOld, journalFile} {
		f, err := os.Open(filepath.Join(podDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("journal of pod %s: %w", filepath.Base(podDir), err)
		}
		text, err := io.ReadAll(io.LimitReader(f, 2*journalSize))
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("journal of pod %s: %w", filepath.Base(podDir), err)
		}
		entries = append(entries, parseJournal(text)...)
	}
	return entries, nil
}

// parseJournal reads lines. A line that is not an Entry, such as one that a crash has
// cut off, is skipped.
func parseJournal(text []byte) []Entry {
	var entries []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && (e.Entrypoint != "" || len(e.Unknown) > 0) {
			entries = append(entries, e)
		}
	}
	return entries
}

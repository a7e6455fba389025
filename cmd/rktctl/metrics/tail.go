package metrics

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// position says how far a journal was counted.
type position struct {
	Inode  uint64 `json:"inode,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// tail reads the journal of a pod as it grows. It keeps the file open, so the calls that end a pod
// can be read when the pod is gone.
type tail struct {
	*position
	pod  *view.Pod
	ids  map[string]string // of apps, by their names: also of those that are removed
	file *os.File          // the journal that the position is in, or nil
}

// see takes a new reading of the pod.
func (t *tail) see(p *view.Pod) {
	t.pod = p
	for _, a := range p.Apps {
		if a.ID != "" { // while an app is being removed, its files no longer have its id
			t.ids[a.Name] = a.ID
		}
	}
}

func (t *tail) close() {
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}

// read returns the entries after the position and moves it to the end. If the journal was
// rotated since, it reads the rest of the old one first. If the pod is gone, it reads the rest of
// the journal that it has open.
func (t *tail) read() []journal.Entry {
	now, inode := open(filepath.Join(t.pod.Dir, journal.File))
	if now == nil {
		return t.rest()
	}
	if t.file != nil && inode == t.Inode {
		_ = now.Close()
		return t.rest()
	}
	var entries []journal.Entry
	if inode != t.Inode {
		if t.file == nil {
			t.openOld()
		}
		entries = t.rest()
		t.close()
		t.Inode, t.Offset = inode, 0
	}
	t.file = now
	return append(entries, t.rest()...)
}

// openOld opens the journal before the present one, if the position is in it.
func (t *tail) openOld() {
	old, inode := open(filepath.Join(t.pod.Dir, journal.Old))
	if old != nil && (inode == t.Inode || t.Inode == 0) {
		t.file = old
	} else if old != nil {
		_ = old.Close()
	}
}

// maxJournal is how much is read of a journal at a time, in bytes.
const maxJournal = 1 << 20

// rest returns the entries of the whole lines of the open file, and moves the position.
func (t *tail) rest() []journal.Entry {
	if t.file == nil {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(t.file, t.Offset, maxJournal))
	if err != nil {
		return nil
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	t.Offset += int64(len(text))
	return journal.Parse(text)
}

// open opens a regular file and returns its inode.
func open(path string) (*os.File, uint64) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0
	}
	st, err := f.Stat()
	if s, ok := st.Sys().(*syscall.Stat_t); err == nil && ok && st.Mode().IsRegular() {
		return f, s.Ino
	}
	_ = f.Close()
	return nil, 0
}

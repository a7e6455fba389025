package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"
)

// Keys in the query of a file:// URI, and their limits. A log without maxSizeKey has no
// bound.
const (
	maxSizeKey  = "max-size"  // bytes of one file
	maxFilesKey = "max-files" // the log itself and older ones: PATH.1 is the newest of these
	minLogSize  = bufferSize  // one write of a pump fits into an empty file
	mostFiles   = 100
	nextSuffix  = ".next" // of the file that is about to become the log
)

// bound is the size to which a log is limited. The zero value means no limit.
type bound struct {
	size  int64
	files int
}

// parseBound reads the bound of a file:// URI. It ignores other keys.
func parseBound(query url.Values) (b bound, err error) {
	text := query.Get(maxSizeKey)
	if text == "" {
		return bound{}, nil
	}
	if b.size, err = strconv.ParseInt(text, 10, 64); err != nil || b.size < minLogSize {
		return bound{}, fmt.Errorf("%s=%s: not a number of bytes from %d: %w", maxSizeKey, text, minLogSize, errdefs.ErrInvalidArgument)
	}
	b.files = 1
	if text = query.Get(maxFilesKey); text != "" {
		if b.files, err = strconv.Atoi(text); err != nil || b.files < 1 || b.files > mostFiles {
			return bound{}, fmt.Errorf("%s=%s: not a number from 1 to %d: %w", maxFilesKey, text, mostFiles, errdefs.ErrInvalidArgument)
		}
	}
	return b, nil
}

// boundedLog is a log file that is replaced before it exceeds its bound. Both streams of a
// process may write to it.
type boundedLog struct {
	path string
	bound

	// writing is held during a write and a replacement. Nothing else waits for it but the
	// other stream of the same process.
	writing sync.Mutex
	w       *os.File
	written int64
}

func openBounded(path string, b bound) (*boundedLog, error) {
	l := &boundedLog{path: path, bound: b}
	var err error
	l.w, l.written, err = openRegular(path, 0)
	return l, err
}

// openRegular opens a file of a log for appending, and returns its size. flags may have O_TRUNC.
func openRegular(path string, flags int) (*os.File, int64, error) {
	w, err := os.OpenFile(path, logFlags|flags, logMode)
	if err != nil {
		return nil, 0, err
	}
	st, err := w.Stat()
	if err == nil && !st.Mode().IsRegular() { // another one, such as /dev/null, must not be renamed
		err = fmt.Errorf("%s is no regular file, and cannot have %s: %w", path, maxSizeKey, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, 0, errors.Join(err, w.Close())
	}
	return w, st.Size(), nil
}

// write appends to the log. After close it returns os.ErrClosed.
func (l *boundedLog) write(b []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.w == nil {
		return os.ErrClosed
	}
	if l.written > 0 && l.written+int64(len(b)) > l.size {
		if err := l.replace(); err != nil {
			return err
		}
	}
	n, err := l.w.Write(b)
	l.written += int64(n)
	return err
}

// replace begins a new file. The oldest one is dropped. The new file is opened under a name of its
// own before any other is renamed: without a descriptor or room for it, all is as before, and the next
// write tries again.
func (l *boundedLog) replace() error {
	next := l.path
	if l.files > 1 {
		next += nextSuffix
	}
	w, size, err := openRegular(next, os.O_TRUNC)
	if err != nil {
		return err
	}
	if l.files > 1 {
		if err := l.shift(next); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	old := l.w
	l.w, l.written = w, size
	return old.Close()
}

// shift renames the log to the first of its older files, and next to the log.
func (l *boundedLog) shift(next string) error {
	for i := l.files - 1; i > 0; i-- {
		if err := os.Rename(older(l.path, i-1), older(l.path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(next, l.path)
}

// older returns the path of the i-th older file of a log; the 0th is the log.
func older(path string, i int) string {
	if i == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", filepath.Clean(path), i)
}

func (l *boundedLog) close() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.w != nil {
		_ = l.w.Close()
		l.w = nil
	}
}

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
	return l, l.open(0)
}

// open opens the log. flags may have O_EXCL or O_TRUNC.
func (l *boundedLog) open(flags int) error {
	w, err := os.OpenFile(l.path, logFlags|flags, logMode)
	if err != nil {
		return err
	}
	st, err := w.Stat()
	if err == nil && !st.Mode().IsRegular() { // another one, such as /dev/null, must not be renamed
		err = fmt.Errorf("%s is no regular file, and cannot have %s: %w", l.path, maxSizeKey, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return errors.Join(err, w.Close())
	}
	l.w, l.written = w, st.Size()
	return nil
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

// replace begins a new file. The oldest one is dropped.
func (l *boundedLog) replace() error {
	flags := os.O_EXCL
	if l.files == 1 {
		flags = os.O_TRUNC
	}
	for i := l.files - 1; i > 0; i-- {
		if err := os.Rename(older(l.path, i-1), older(l.path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	old := l.w
	if err := l.open(flags); err != nil {
		return err
	}
	return old.Close()
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

// Package trusted reads files that decide what is executed as root: the
// configuration, and the keys of those who may sign images. It refuses what somebody
// else could have written. What the files say is their readers' business.
package trusted

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadFile reads a regular file that nobody but root, or the user who reads it, can
// write, and that is not longer than limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo must not hold up a pod
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	if err := Check(path, st); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return text, err
}

// Check returns an error if others can write a file or directory. st is what path is.
func Check(path string, st fs.FileInfo) error {
	s, ok := st.Sys().(*syscall.Stat_t)
	if ok && st.Mode()&0o022 == 0 && slices.Contains([]int{0, os.Geteuid()}, int(s.Uid)) {
		return nil
	}
	return fmt.Errorf("%s can be written by others than root, and decides what is executed as root: chown root, chmod go-w", path)
}

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Lock opens a file or directory and takes its flock(2), in the way of LOCK_EX and the
// others; the open flags are those of os.OpenFile. It returns nil without an error if the
// path no longer leads to that file, because the last owner of the lock has removed it.
func Lock(path string, open, how int) (*os.File, error) {
	f, err := os.OpenFile(path, open, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), how)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	opened, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(path); err == nil && os.SameFile(opened, named) {
			return f, nil
		}
	}
	f.Close()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return nil, err
}

package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Lock opens a file or directory and takes its flock(2). how is LOCK_EX or another
// operation of flock(2), and flag has the flags of os.OpenFile. Lock returns nil without an
// error if the path no longer leads to the opened file, because the last owner of the lock
// has removed it.
func Lock(path string, flag, how int) (*os.File, error) {
	f, err := OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := Flock(f, how); err != nil {
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

// Flock is flock(2). It repeats the call if a signal interrupts it.
func Flock(f *os.File, how int) (err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(f.Fd()), how)
	}
	return err
}

// FlockUntil is Flock until ctx is done; then it returns the cause of ctx. If it returns an
// error, it has closed the file or will close it later, because a flock(2) that waits
// cannot be interrupted.
func FlockUntil(ctx context.Context, f *os.File, how int) error {
	locked := make(chan error, 1)
	go func() { locked <- Flock(f, how) }()
	select {
	case err := <-locked:
		if err != nil {
			_ = f.Close()
		}
		return err
	case <-ctx.Done():
		go func() {
			<-locked
			_ = f.Close()
		}()
		return context.Cause(ctx)
	}
}

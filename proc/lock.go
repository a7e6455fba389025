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
	f, _, err := LockStat(path, flag, how)
	return f, err
}

// LockStat is Lock, and returns what lstat(2) has said about the path after it was locked.
func LockStat(path string, flag, how int) (*os.File, unix.Stat_t, error) {
	var opened, named unix.Stat_t
	f, err := OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, named, err
	}
	if err := Flock(f, how); err != nil {
		f.Close()
		return nil, named, fmt.Errorf("lock %s: %w", path, err)
	}
	if err = unix.Fstat(int(f.Fd()), &opened); err == nil {
		if err = unix.Lstat(path, &named); err == nil && opened.Dev == named.Dev && opened.Ino == named.Ino {
			return f, named, nil
		}
	}
	f.Close()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, named, nil
	}
	if err != nil {
		err = fmt.Errorf("look at %s: %w", path, err)
	}
	return nil, named, err
}

// Locked reports whether a process has a file or directory locked with LOCK_EX. The file must
// be one that only the last owner of the lock may remove.
func Locked(path string, flag int) (bool, error) {
	fd, err := OpenFD(path, flag)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	_, err = again(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", path, err)
	}
	return false, nil
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

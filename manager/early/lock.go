package early

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// LockSuffix follows the name of a socket in the name of its lock.
const LockSuffix = ".lock"

// GroupLock is held while the socket of a group is made or removed. It is a flock on a
// file beside the socket. Its owner removes the file; SweepSockets removes the file of
// an owner that was killed.
type GroupLock struct {
	file *os.File
	path string
}

// LockGroup waits for the lock of the socket at path, or for the end of ctx.
func LockGroup(ctx context.Context, path string) (*GroupLock, error) {
	path += LockSuffix
	if ctx.Done() == nil {
		return waitForLock(path)
	}
	type result struct {
		lock *GroupLock
		err  error
	}
	// flock cannot be interrupted. After ctx has ended, this goroutine stays blocked
	// until it gets the lock or the process ends. It releases a lock that it gets then,
	// because the file of the lock must not stay.
	got := make(chan result)
	go func() {
		lock, err := waitForLock(path)
		select {
		case got <- result{lock, err}:
		case <-ctx.Done():
			if err == nil {
				lock.Release()
			}
		}
	}()
	select {
	case r := <-got:
		return r.lock, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
	}
}

func waitForLock(path string) (*GroupLock, error) {
	for {
		lock, err := lockFile(path, os.O_CREATE, unix.LOCK_EX)
		if lock != nil || err != nil {
			return lock, err
		}
		// The owner before us removed the file that we had waited on.
	}
}

// tryLockGroup takes the lock of the socket at path. It returns nil if another process holds the
// lock or, without O_CREATE in open, if the file of the lock does not exist.
func tryLockGroup(path string, open int) (*GroupLock, error) {
	lock, err := lockFile(path+LockSuffix, open, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lock, err
}

// lockFile opens and locks a file. It returns nil if the file was removed meanwhile.
func lockFile(path string, open, how int) (*GroupLock, error) {
	f, err := proc.Lock(path, os.O_RDWR|unix.O_NOFOLLOW|open, how)
	if f == nil {
		return nil, err
	}
	return &GroupLock{f, path}, nil
}

func (l *GroupLock) Release() {
	os.Remove(l.path)
	l.file.Close()
}

package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// lockSuffix follows the name of a socket in the name of its lock.
const lockSuffix = ".lock"

// groupLock is held while the socket of a group is made or removed. It is a flock on a
// file beside the socket. Its owner removes the file; sweepSockets removes the file of
// an owner that was killed.
type groupLock struct {
	file *os.File
	path string
}

// lockGroup waits for the lock of the socket at path, or for the end of ctx.
func lockGroup(ctx context.Context, path string) (*groupLock, error) {
	path += lockSuffix
	if ctx.Done() == nil {
		return waitForLock(path)
	}
	type result struct {
		lock *groupLock
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
				lock.release()
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

func waitForLock(path string) (*groupLock, error) {
	for {
		lock, err := lockFile(path, os.O_CREATE, unix.LOCK_EX)
		if lock != nil || err != nil {
			return lock, err
		}
		// The owner before us removed the file that we had waited on.
	}
}

// tryLockGroup takes the lock of the socket at path. It returns nil if the file of the
// lock does not exist or another process holds the lock.
func tryLockGroup(path string) (*groupLock, error) {
	lock, err := lockFile(path+lockSuffix, 0, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lock, err
}

// lockFile opens and locks a file. It returns nil if the file was removed meanwhile.
func lockFile(path string, open, how int) (*groupLock, error) {
	f, err := proc.Lock(path, os.O_RDWR|unix.O_NOFOLLOW|open, how)
	if f == nil {
		return nil, err
	}
	return &groupLock{f, path}, nil
}

func (l *groupLock) release() {
	os.Remove(l.path)
	l.file.Close()
}

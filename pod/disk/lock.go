package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// openDir opens a directory for locking, as rkt does: the lock is flock(2) on the
// directory itself, so it survives a rename.
func openDir(path string) (*os.File, error) {
	return proc.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// flock locks or unlocks an open file. Without LOCK_NB it waits.
func flock(f *os.File, how int) error {
	if err := proc.Flock(f, how); err != nil {
		return fmt.Errorf("flock %s: %w", f.Name(), err)
	}
	return nil
}

// isLocked reports whether a process holds the exclusive lock of a directory. Like
// every observer it takes the shared lock for an instant.
func isLocked(path string) (bool, error) {
	f, err := openDir(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// lockRetry is the pause between attempts to take the lock of a directory whose owner
// has ended, and lockLimit the time for all attempts. An observer, or another process
// that removes the pod, may hold the shared lock for an instant.
const (
	lockRetry = 2 * time.Millisecond
	lockLimit = 2 * time.Second
)

// lockDir takes the exclusive lock of a directory whose owner has ended. It gives up
// when ctx is done.
func lockDir(ctx context.Context, path string) (*os.File, error) {
	f, err := openDir(path)
	if err != nil {
		return nil, err
	}
	for {
		err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			if err = proc.Sleep(ctx, lockRetry); err == nil {
				continue
			}
			err = fmt.Errorf("%s is still locked: %w", path, err)
		}
		_ = f.Close()
		return nil, err
	}
}

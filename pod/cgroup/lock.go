package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// locks is the directory of the locks of cgroups: a file for each cgroup, named by the version of
// cgroups and the inode of its first directory. An owner holds the flock(2) of the file until it
// has removed the cgroup, or ends. The files are beside the data directories, because the shims of
// all daemons of a host share its cgroups.
//
// The directory of the cgroup itself is no place for a lock: a container can open it, through a
// mount of cgroups that may be read-only, and lock it as well. It could then keep others from
// removing the cgroup, or pass for its owner.
const locks = "/run/containerd-shim-rkt/cgroups"

func lockPath(version int, inode uint64) string {
	return filepath.Join(locks, fmt.Sprintf("v%d-%s", version, strconv.FormatUint(inode, 10)))
}

// lockDir locks the cgroup of a directory. The error unwraps to errTaken if another process has
// locked it, and to fs.ErrNotExist if it was removed in between.
func lockDir(version int, dir string) (lock *os.File, st unix.Stat_t, err error) {
	for lock == nil {
		if st, err = lstatDir(dir); err != nil {
			return nil, st, err
		}
		lock, err = lockFile(lockPath(version, st.Ino), tryLock)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%w by another container", errTaken)
		}
		if err != nil {
			return nil, st, err
		}
	}
	now, err := lstatDir(dir)
	if err == nil && now.Ino != st.Ino {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, st, errors.Join(err, unlock(lock))
	}
	return lock, now, nil
}

func lstatDir(dir string) (st unix.Stat_t, err error) {
	err = unix.Lstat(dir, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		err = &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	return st, err
}

// awaitLock is lockDir for the recorded inode of a cgroup, and waits for the lock until ctx is done.
func awaitLock(ctx context.Context, version int, inode uint64) (*os.File, error) {
	for {
		lock, err := lockFile(lockPath(version, inode), func(f *os.File) error {
			return proc.FlockUntil(ctx, f, unix.LOCK_EX)
		})
		if lock != nil || err != nil {
			return lock, err
		}
	}
}

// tryLock takes a lock, or closes the file.
func tryLock(f *os.File) error {
	err := proc.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		_ = f.Close()
	}
	return err
}

// lockFile opens the file of a lock and calls flock, which locks it or closes it. It returns nil if
// the owner before has removed the file meanwhile.
func lockFile(path string, flock func(*os.File) error) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW
	f, err := proc.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(locks, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of locks: %w", err)
		}
		f, err = proc.OpenFile(path, flags, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	var opened, named unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &opened); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := unix.Lstat(path, &named); err != nil || opened.Ino != named.Ino {
		return nil, f.Close()
	}
	return f, nil
}

// unlock releases a lock and removes its file, of which the next owner makes another one.
func unlock(lock *os.File) error { return errors.Join(os.Remove(lock.Name()), lock.Close()) }

// isLocked reports whether a process has locked the cgroup with this inode.
func isLocked(version int, inode uint64) (bool, error) {
	locked, err := proc.Locked(lockPath(version, inode), os.O_RDONLY|unix.O_NOFOLLOW)
	return locked, unlessGone(err)
}

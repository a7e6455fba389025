package cgroup

import (
	"context"
	"fmt"
)

// Take locks a cgroup of a Record whose maker has died. This process is about to kill the
// cgroup's processes and to remove it. If another process does the same, Take waits for it,
// until ctx is done. It returns false if a later cgroup has the path, because that belongs
// to another container, and an error if a running container has a cgroup below. Remove and
// Release release the lock.
func (g *Group) Take(ctx context.Context) (bool, error) {
	inode := g.record.Inode
	if inode == 0 { // the record of an early release
		st, err := lstatDir(g.record.Dir())
		if err != nil {
			return isGone(err), unlessGone(err) // other hierarchies may still have it
		}
		inode = st.Ino
	}
	if g.Replaced() {
		return false, nil
	}
	lock, err := awaitLock(ctx, g.record.Version, inode)
	if err != nil {
		return false, fmt.Errorf("cgroup %s: %w", g.Path(), err)
	}
	g.lock = lock
	if g.Replaced() { // the cgroup was removed and made again during the wait
		return false, g.Release()
	}
	below, err := lockedBelow(g.record.Version, g.record.Dir())
	if err == nil && below != "" {
		err = fmt.Errorf("a living container has the cgroup %s below it: not killed", below)
	}
	if err != nil {
		_ = g.Release()
		return false, fmt.Errorf("cgroup %s: %w", g.Path(), err)
	}
	return true, nil
}

// Release releases the lock of Take. The cgroup stays.
func (g *Group) Release() error {
	if g.lock == nil {
		return nil
	}
	err := unlock(g.lock)
	g.lock = nil
	return err
}

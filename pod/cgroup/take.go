package cgroup

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Take locks a cgroup of a Record whose maker has died. This process is about to kill the
// cgroup's processes and to remove it. If another process does the same, Take waits for it,
// until ctx is done. It returns false if a later cgroup has the path, because that belongs
// to another container, and an error if a running container has a cgroup below. Remove and
// Release release the lock.
func (g *Group) Take(ctx context.Context) (bool, error) {
	dir := g.record.Dir()
	lock, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if isGone(err) {
		return true, nil // other hierarchies may still have it
	}
	if err != nil {
		return false, fmt.Errorf("cgroup %s: %w", g.Path(), err)
	}
	if g.Replaced() {
		return false, lock.Close()
	}
	if err := proc.FlockUntil(ctx, lock, unix.LOCK_EX); err != nil {
		return false, fmt.Errorf("lock cgroup %s: %w", g.Path(), err)
	}
	g.lock = lock
	if g.Replaced() { // the cgroup was removed and made again during the wait
		return false, g.Release()
	}
	below, err := lockedBelow(dir)
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
	err := g.lock.Close()
	g.lock = nil
	return err
}

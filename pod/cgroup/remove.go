package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Pauses before another attempt to remove a cgroup that is busy. The kernel counts a
// process for a moment after it has reported its exit, and announces nothing when that
// moment is over.
const (
	firstRetry = time.Millisecond
	lastRetry  = 64 * time.Millisecond
)

// End is Kill and Remove. The kernel removes no cgroup that has processes, or cgroups below it, so
// most often nothing has to be looked at.
func (g *Group) End(ctx context.Context) error {
	if !g.removeUnused() {
		return errors.Join(g.Kill(ctx), g.Remove(ctx))
	}
	g.removed(ctx)
	return nil
}

// removeUnused removes the directories that have neither processes nor directories, and reports
// whether that were all. The first directory is the last one, because the path is free without it.
func (g *Group) removeUnused() bool {
	for _, dir := range g.all() {
		if dir != g.record.Dir() && rmdir(dir) != nil {
			return false
		}
	}
	return rmdir(g.record.Dir()) == nil
}

// Remove removes the cgroup and the cgroups below it, in every hierarchy. It is no error if
// they are gone. Remove kills no process: while there are processes, it retries until ctx
// is done.
func (g *Group) Remove(ctx context.Context) error {
	if err := g.removeDirs(ctx); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", g.Path(), err)
	}
	g.removed(ctx)
	return nil
}

// removed gives up what the cgroup had besides its directories.
func (g *Group) removed(ctx context.Context) {
	_ = g.Release()
	g.removeParents()
	g.leaveScope(ctx)
}

// RemoveTree kills the processes in and below a cgroup of one hierarchy, and removes the
// cgroup. version is the hierarchy's version of cgroups. If the cgroup is gone, RemoveTree
// returns nil. While the kernel counts processes in it, RemoveTree retries until ctx is
// done.
func RemoveTree(ctx context.Context, version int, dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	record := Record{Version: 1, Path: dir, Dirs: map[string]string{"name=cgroup": dir}}
	if version == 2 {
		record = Record{Version: 2, Path: dir, Dirs: map[string]string{"": dir}}
	}
	return errors.Join(newGroup(record, nil).Kill(ctx), removeBelow(ctx, dir))
}

func (g *Group) removeDirs(ctx context.Context) error {
	var errs []error
	for _, dir := range g.all() {
		errs = append(errs, removeBelow(ctx, dir))
	}
	return errors.Join(errs...)
}

// all returns the directories that Create makes, and the one that only an OCI runtime makes with a
// cgroup of an earlier release: a runtime that was killed may have left it.
func (g *Group) all() []string {
	if g.record.Unified == "" || g.record.UnifiedMade {
		return g.dirs
	}
	return append(slices.Clone(g.dirs), g.record.Unified)
}

// removeBelow removes a directory. If it has cgroups below it, it removes these first.
func removeBelow(ctx context.Context, dir string) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := rmdir(dir)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := walk(dir, nil, removeIdle); err != nil {
			return fmt.Errorf("remove what is below %s: %w", dir, err)
		}
		if err := rmdir(dir); !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := proc.Sleep(ctx, wait); err != nil {
			pids, _ := pidsBelow(dir)
			return fmt.Errorf("%s is busy with processes %v: %w", dir, pids, err)
		}
	}
}

// removeIdle removes a cgroup, unless it has processes, or cgroups below it.
func removeIdle(parent *os.File, name string) error {
	for {
		switch err := unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR); err {
		case unix.EINTR:
		case nil, unix.EBUSY, unix.ENOENT, unix.ENODEV:
			return nil
		default:
			return err
		}
	}
}

func rmdir(dir string) error {
	for {
		switch err := unix.Rmdir(dir); err {
		case unix.EINTR:
		case nil, unix.ENOENT, unix.ENODEV:
			return nil
		default:
			return fmt.Errorf("rmdir %s: %w", dir, err)
		}
	}
}

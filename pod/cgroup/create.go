package cgroup

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// claimTries bounds how many paths Create tries. The second path has a random suffix, so
// another container can have it only after a race.
const claimTries = 5

// undoLimit is how long a failed Create may take to remove its directories.
const undoLimit = time.Second

// Maker makes cgroups. If it has Children and systemd runs, a path of the form
// slice:prefix:name becomes a scope of systemd's (scope.go).
type Maker struct {
	Children *proc.Children
}

// Create makes an app's cgroup and writes its limits. It moves no process. A nil res means
// no limits and the default access to devices.
//
// If a cgroup with that path exists, has no processes and is not locked, it was abandoned,
// and Create makes it again. If the cgroup is in use, Create returns an *InUseError. There
// is one exception: containerd itself writes the path /NAMESPACE/ID, which a container of
// the same name of another daemon may have, too. Then the new cgroup gets a path with a
// random suffix, which Path returns.
//
// If a limit cannot be enforced, the error names the field, or the controller that is not
// mounted. On failure only parent directories remain.
func (m Maker) Create(p Path, res *specs.LinuxResources) (*Group, error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	return m.create(h, p, res)
}

func (m Maker) create(h *hierarchies, p Path, res *specs.LinuxResources) (*Group, error) {
	path, err := p.Resolve()
	if err != nil {
		return nil, err
	}
	if err := h.check(res); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	r, err := h.locate(path, p.Daemon)
	if err != nil {
		return nil, err
	}
	if err := r.reachable(p.Daemon); err != nil {
		return nil, err
	}
	g, err := m.claim(h, p, r)
	if errors.Is(err, errTaken) {
		return nil, &InUseError{Path: path, Dir: r.Dir(), why: err}
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	if err := g.setUp(res); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", g.Path(), err), g.Remove(ctx))
	}
	return g, nil
}

func (m Maker) claim(h *hierarchies, p Path, r Record) (*Group, error) {
	if u, ok := h.scopeOf(p); ok && m.Children != nil {
		return h.claimScope(u, m.Children)
	}
	if p.chosen(r.Path) {
		return h.claim(r)
	}
	return h.claimNear(r)
}

// claimNear claims a path, or, if it is taken, the path with a random suffix.
func (h *hierarchies) claimNear(r Record) (*Group, error) {
	candidate := r
	for range claimTries {
		g, err := h.claim(candidate)
		if !errors.Is(err, errTaken) {
			return g, err
		}
		candidate = h.record(r.Path + "-" + randomSuffix())
	}
	return nil, errTaken
}

func randomSuffix() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// claim makes the cgroup's first directory and locks it.
func (h *hierarchies) claim(r Record) (*Group, error) {
	dir := r.Dir()
	for range claimTries {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return nil, err
		}
		err := os.Mkdir(dir, 0o755)
		made := err == nil
		if !made && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		lock, err := lockDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the cgroup that existed was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		r.Inode = inode(lock)
		g := newGroup(r, lock)
		stale, err := g.others(made)
		if err == nil {
			err = g.apart(h)
		}
		if err == nil && !stale {
			return g, nil
		}
		switch {
		case err == nil:
			err = g.removeDirs(context.Background())
		case made:
			err = errors.Join(err, rmdir(dir))
		}
		_ = lock.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, errTaken
}

// others checks those directories of the cgroup that existed before. It returns an error if
// one has processes, and stale if they are empty.
func (g *Group) others(made bool) (stale bool, err error) {
	for _, dir := range g.dirs {
		if made && dir == g.record.Dir() {
			continue
		}
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		stale = true
		pids, err := pidsBelow(dir)
		if err != nil {
			return false, err
		}
		if len(pids) > 0 {
			return false, usedBy(pids)
		}
	}
	return stale, nil
}

// lockDir locks a cgroup's directory. The error unwraps to errTaken if another process has
// locked it, and to fs.ErrNotExist if it was removed in between.
func lockDir(dir string) (*os.File, error) {
	f, err := proc.Lock(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("%w by another container", errTaken)
	case f == nil && err == nil:
		return nil, fs.ErrNotExist
	}
	return f, err
}

// setUp makes the other directories and writes the limits.
func (g *Group) setUp(res *specs.LinuxResources) error {
	if res == nil {
		res = &specs.LinuxResources{}
	}
	r, err := convert(res, g.record.Version)
	if err != nil {
		return err
	}
	m, err := g.manager(r)
	if err != nil {
		return err
	}
	const noProcess = -1 // Apply with this makes directories and moves no process
	if err := m.Apply(noProcess); err != nil {
		return err
	}
	g.limits = res
	return g.limit(res, r)
}

// RemoveStale removes the cgroup that a Create has left at a path if it was killed
// half-way: a cgroup without processes that no process has locked. It leaves any other
// cgroup alone.
func RemoveStale(ctx context.Context, p Path) error {
	h, err := host()
	if err != nil {
		return err
	}
	path, err := p.Resolve()
	if err != nil {
		return err
	}
	if _, ok := h.scopeOf(p); ok {
		path = filepath.Join(path, scopeApp)
	}
	r, err := h.locate(path, p.Daemon)
	if err != nil {
		return err
	}
	lock, err := lockDir(r.Dir()) // Create makes this directory first
	if errors.Is(err, errTaken) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	g := newGroup(r, lock)
	switch stale, err := g.others(false); {
	case errors.Is(err, errTaken) || err == nil && !stale:
		return lock.Close()
	case err != nil:
		return errors.Join(fmt.Errorf("cgroup %s: %w", path, err), lock.Close())
	}
	return g.Remove(ctx)
}

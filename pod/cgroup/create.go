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

// errTaken says that somebody else uses a cgroup.
var errTaken = errors.New("cgroup is in use")

// claimTries bounds how often Create meets others' cgroups. The second path is
// random, so only a race can make it fail.
const claimTries = 5

// undoLimit is how long Create may take to remove what it made.
const undoLimit = time.Second

// Create makes an app's cgroup and writes its limits; no process is moved. A nil
// res means no limits and the default access to devices.
//
// A cgroup that is there already, without processes and without an owner, was
// left behind and is made anew. One that is in use belongs to the container of
// the same name of another daemon: then this one gets a path with a random
// suffix, which Path tells.
//
// A limit that cannot be enforced is an error that names the field, or the
// controller that is not mounted. On failure nothing remains but parents.
func Create(p Path, res *specs.LinuxResources) (*Group, error) {
	return Maker{}.Create(p, res)
}

// Maker makes cgroups. With Children, and where systemd runs, a path of the form
// slice:prefix:name becomes a scope of systemd's (scope.go).
type Maker struct {
	Children *proc.Children
}

// Create is as the function is.
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
	claim := func() (*Group, error) { return h.claimNear(path) }
	if u, ok := h.scopeOf(p); ok && m.Children != nil {
		claim = func() (*Group, error) { return h.claimScope(u, m.Children) }
	}
	g, err := claim()
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

// claimNear claims a path, or one like it.
func (h *hierarchies) claimNear(path string) (*Group, error) {
	candidate := path
	for range claimTries {
		g, err := h.claim(candidate)
		if !errors.Is(err, errTaken) {
			return g, err
		}
		candidate = path + "-" + randomSuffix()
	}
	return nil, errTaken
}

func randomSuffix() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// claim makes the cgroup's first directory and locks it.
func (h *hierarchies) claim(path string) (*Group, error) {
	r := h.record(path)
	dir := r.Dirs[primary(h.version)]
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
			continue // removed since by its owner
		}
		if err != nil {
			return nil, err
		}
		r.Inode = inode(lock)
		g := newGroup(r, lock)
		stale, err := g.others(made)
		if err == nil && !stale {
			return g, nil
		}
		if err == nil {
			err = g.removeDirs(context.Background())
		}
		_ = lock.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, errTaken
}

// others looks at what is there of the cgroup beside what was just made.
// Processes are an error, empty directories are stale.
func (g *Group) others(made bool) (stale bool, err error) {
	for _, dir := range g.dirs {
		if made && dir == g.record.Dirs[primary(g.record.Version)] {
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
			return false, errTaken
		}
	}
	return stale, nil
}

// lockDir locks a cgroup's directory. The error is errTaken if another process
// has it, and fs.ErrNotExist if it was removed in between.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errTaken
	}
	var opened, now os.FileInfo
	if err == nil {
		opened, err = f.Stat()
	}
	if err == nil {
		now, err = os.Lstat(dir)
	}
	if err == nil && !os.SameFile(opened, now) {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
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
	const nobody = -1 // makes directories, moves no process
	if err := m.Apply(nobody); err != nil {
		return err
	}
	g.limits = res
	return g.limit(res, r)
}

// RemoveStale removes what a Create that was killed half-way has left at a path:
// a cgroup without processes that nobody has locked. Anything else it leaves
// alone.
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
	r := h.record(path)
	lock, err := lockDir(r.Dirs[primary(h.version)]) // made first, so it is there
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

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

	"github.com/opencontainers/cgroups"
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
// mounted. On failure only parent directories of version 1 remain, or of version 2 alone.
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
	g, err := m.claim(h, p, r, res)
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

func (m Maker) claim(h *hierarchies, p Path, r Record, res *specs.LinuxResources) (*Group, error) {
	if u, ok := h.scopeOf(p); ok && m.Children != nil {
		limits, err := scopeLimits(res, h.version)
		if err != nil {
			return nil, err
		}
		return h.claimScope(u, m.Children, limits)
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

// claim makes the cgroup's directories and locks the cgroup.
func (h *hierarchies) claim(r Record) (*Group, error) {
	dir := r.Dir()
	for range claimTries {
		made, err := makeDir(dir)
		if err != nil {
			return nil, err
		}
		lock, st, err := lockDir(r.Version, dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the cgroup that existed was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		r.Inode = st.Ino
		g := newGroup(r, lock)
		stale := !made
		if stale {
			err = g.unused()
		}
		if err == nil {
			err = g.apart(h, &st)
		}
		if err == nil && !stale {
			stale, err = g.makeOthers()
		}
		if err == nil && made && st.Mode&0o777 != dirMode {
			err = g.widen()
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
		err = errors.Join(err, unlock(lock))
		if err != nil {
			return nil, err
		}
	}
	return nil, errTaken
}

// dirMode is the mode of cgroups. The root of a user namespace has to pass through them.
const dirMode = 0o755

// makeDir makes a directory, and its parents if they do not exist. It returns false if the
// directory exists. The umask may take bits of the directory's mode, and not of its parents'.
func makeDir(dir string) (made bool, err error) {
	err = os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrNotExist) {
		var parent bool
		if parent, err = makeDir(filepath.Dir(dir)); parent {
			err = os.Chmod(filepath.Dir(dir), dirMode)
		}
		if err == nil {
			err = os.Mkdir(dir, dirMode)
		}
	}
	return madeDir(err)
}

// madeDir returns the result of a function that makes a directory, by the error of mkdir(2).
func madeDir(err error) (made bool, _ error) {
	switch {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case errors.Is(err, unix.EROFS):
		err = fmt.Errorf("%w: a container has a cgroup in every hierarchy that containerd sees, so mount this one writable for containerd", err)
	}
	return err == nil, err
}

// widen gives the cgroup's directories their mode, of which containerd's umask has taken bits.
func (g *Group) widen() error {
	for _, dir := range g.dirs {
		if err := os.Chmod(dir, dirMode); err != nil {
			return err
		}
	}
	return nil
}

// makeOthers makes the cgroup's directories in the other hierarchies. stale reports whether one
// of them existed and was empty. On an error, which unwraps to errTaken if there are processes
// in one of them, makeOthers has removed those that it has made.
func (g *Group) makeOthers() (stale bool, err error) {
	var all []string
	for _, dir := range g.dirs {
		if dir == g.record.Dir() {
			continue
		}
		mk := makeDir
		if g.record.UnifiedMade && dir == g.record.Unified {
			mk = makeBelowParents
		}
		var made bool
		if made, err = mk(dir); made {
			all = append(all, dir)
		} else if err == nil {
			stale, err = true, unusedDir(dir)
		}
		if err != nil {
			for _, dir := range all {
				err = errors.Join(err, rmdir(dir))
			}
			g.removeParents()
			return false, err
		}
	}
	return stale, nil
}

// unused returns an error that unwraps to errTaken if the cgroup has processes.
func (g *Group) unused() error {
	for _, dir := range g.dirs {
		if err := unusedDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func unusedDir(dir string) error {
	pids, err := pidsBelow(dir)
	if err == nil && len(pids) > 0 {
		err = usedBy(pids)
	}
	return err
}

// setUp makes the new cgroup ready for processes, and writes the limits.
func (g *Group) setUp(res *specs.LinuxResources) error {
	if res == nil {
		res = &specs.LinuxResources{}
	}
	r, err := convert(res, g.record.Version)
	if err != nil {
		return err
	}
	if g.record.Version == 1 {
		err = g.setUpV1(r)
	} else {
		err = g.setUpV2(r)
	}
	if err != nil {
		return err
	}
	g.limits = res
	return g.limit(res, r)
}

// setUpV2 enables the controllers that r needs, in all cgroups above.
func (g *Group) setUpV2(r *cgroups.Resources) error {
	m, err := g.manager(r)
	if err != nil {
		return err
	}
	const noProcess = -1 // Apply with this moves no process
	return m.Apply(noProcess)
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
	lock, _, err := lockDir(r.Version, r.Dir()) // Create makes this directory first
	if errors.Is(err, errTaken) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	g := newGroup(r, lock)
	switch err := g.unused(); {
	case errors.Is(err, errTaken):
		return unlock(lock)
	case err != nil:
		return errors.Join(fmt.Errorf("cgroup %s: %w", path, err), unlock(lock))
	}
	return g.Remove(ctx)
}

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// Tree is a tree of the store, with the reason for which it is kept.
type Tree struct {
	Digest string `json:"digest"`
	Name   string `json:"name,omitempty"` // of the stage1, if it can be read
	Bytes  int64  `json:"bytes"`          // of its files
	Kept   string `json:"kept,omitempty"` // the reason for which it is kept; empty if it is removed
}

// Collect removes the unused trees. A tree is in use if a pod has it, if it was imported,
// if its source is unchanged, if its digest is wanted, or if a process is about to make a
// pod with it. If dry is set, Collect removes nothing and returns the trees that it would
// remove.
func (s *Store) Collect(ctx context.Context, wanted []string, dry bool) (_ []Tree, err error) {
	defer prefix(&err, "collect stage1 trees")
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.collect(ctx, wanted, dry)
}

// collectReplaced collects after a new tree was rendered. It only logs errors, because a
// tree that cannot be removed does no harm to pods. The caller has the store's lock.
func (s *Store) collectReplaced(ctx context.Context) {
	if s.Wanted == nil {
		return
	}
	wanted, err := s.Wanted()
	if err == nil {
		_, err = s.collect(ctx, wanted, false)
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("stage1 trees that are not used any more cannot be collected")
	}
}

// collect is Collect for a caller that has the store's lock.
func (s *Store) collect(ctx context.Context, wanted []string, dry bool) ([]Tree, error) {
	kept, stale, err := s.intended(wanted)
	if err != nil {
		return nil, err
	}
	if !dry {
		err := s.sweep()
		for _, file := range stale {
			err = errors.Join(err, os.Remove(file))
		}
		if err != nil {
			return nil, err
		}
	}
	found, err := filepath.Glob(filepath.Join(s.dir, digestPrefix+"*"))
	if err != nil {
		return nil, err
	}
	aside, err := filepath.Glob(filepath.Join(s.dir, damagedPrefix+"*", digestPrefix+"*"))
	if err != nil {
		return nil, err
	}
	// Lock the trees before reading which trees pods have: a process that makes a pod holds
	// the shared lock of the tree until the pod's directory names the tree.
	var all []*candidate
	defer func() {
		for _, d := range all {
			d.unlock()
		}
	}()
	for _, path := range append(found, aside...) {
		d := &candidate{path: path, Tree: Tree{Digest: filepath.Base(path)}}
		if filepath.Dir(path) == s.dir {
			d.Kept = kept[d.Digest]
		}
		if d.Kept == "" {
			d.lockOrKeep()
		}
		all = append(all, d)
	}
	used, err := s.used()
	if err != nil {
		return nil, err
	}
	var trees []Tree
	for _, d := range all {
		if used[d.Digest] {
			d.Kept = "a pod has it"
		}
		d.measure()
		trees = append(trees, d.Tree)
		if d.Kept != "" || dry {
			continue
		}
		if err := errors.Join(s.discard(d), ctx.Err()); err != nil {
			return trees, err
		}
	}
	return trees, nil
}

// candidate is a tree that is removed unless a reason to keep it is found.
type candidate struct {
	Tree
	path string
	lock *os.File
}

func (d *candidate) lockOrKeep() {
	var err error
	d.lock, err = lockTree(d.path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		d.Kept = "a shim has it"
	} else if err != nil {
		d.Kept = err.Error()
	}
}

func (d *candidate) unlock() {
	if d.lock != nil {
		d.lock.Close()
	}
}

// measure sets the size of the tree and the name of its stage1, if they can be read.
func (d *candidate) measure() {
	_ = filepath.WalkDir(d.path, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			d.Bytes += st.Size()
		}
		return nil
	})
	if i, err := openImage(d.path, d.Digest); err == nil {
		d.Name = i.Name()
	}
}

// discard renames a locked tree, so that it can no longer be found, and then removes it.
func (s *Store) discard(d *candidate) error {
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(d.path, filepath.Join(tmp, d.Digest)); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	d.unlock()
	if parent := filepath.Dir(d.path); parent != s.dir {
		return errors.Join(os.Remove(parent), os.RemoveAll(tmp))
	}
	for _, dir := range []string{checkedDir, probedDir} {
		if e := os.Remove(filepath.Join(s.dir, dir, d.Digest+".json")); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, os.RemoveAll(tmp))
}

// intended returns the digests of trees to keep, with the reasons. stale are records of
// sources that no longer exist or have changed.
func (s *Store) intended(wanted []string) (kept map[string]string, stale []string, err error) {
	kept = map[string]string{}
	files, err := filepath.Glob(filepath.Join(s.dir, knownDir, "*.json"))
	if err != nil {
		return nil, nil, err
	}
	for _, file := range files {
		if k, ok := readKnown(file); ok && k.isCurrent() {
			kept[k.Digest] = "it is " + k.Path
		} else {
			stale = append(stale, file)
		}
	}
	imports, err := s.Imports()
	if err != nil {
		return nil, nil, err
	}
	for _, i := range imports {
		kept[i.Digest] = "it was imported"
	}
	for _, digest := range wanted {
		kept[digest] = "the configuration names it"
	}
	return kept, stale, nil
}

// used returns the digests of the stage1s of pods, which are in the pods' directories. It
// reads the directories of states in the order in which a pod moves through them, so it
// sees a pod that moves meanwhile at least once.
func (s *Store) used() (map[string]bool, error) {
	used := map[string]bool{}
	for _, state := range []string{"embryo", "prepare", "prepared", "run", "exited-garbage", "garbage"} {
		dir := filepath.Join(filepath.Dir(s.dir), "pods", state)
		pods, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, p := range pods {
			id, err := os.ReadFile(filepath.Join(dir, p.Name(), IDFile))
			if errors.Is(err, fs.ErrNotExist) {
				continue // the pod has no tree yet, and its shim holds the tree's lock; or the pod has moved on
			}
			if err != nil {
				return nil, err
			}
			used[strings.TrimSpace(string(id))] = true
		}
	}
	return used, nil
}

// Forget removes the record of an import, so that the tree can be collected.
func (s *Store) Forget(ctx context.Context, digest string) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	imports, err := s.Imports()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(imports, func(i Imported) bool { return i.Digest == digest }) {
		return fmt.Errorf("stage1 image %s was not imported: %w", digest, errGone)
	}
	return os.Remove(filepath.Join(s.dir, importedDir, digest+".json"))
}

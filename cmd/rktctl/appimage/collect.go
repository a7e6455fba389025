package appimage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Tree is a tree of the store.
type Tree struct {
	ID     string    `json:"id"`   // sha256- and the chain id of the layers
	Name   string    `json:"name"` // the reference by which it was opened first
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time"`           // at which it was unpacked
	Used   time.Time `json:"used"`           // at which an app got it last
	Kept   string    `json:"kept,omitempty"` // the reason for which Collect keeps it; empty if it is removed
	Broken bool      `json:"broken,omitempty"`
}

// Trees returns the trees of the store, and says which of them are in use.
func (s *Store) Trees(ctx context.Context) ([]Tree, error) {
	return s.Collect(ctx, Collection{Dry: true})
}

// Collection says which trees Collect removes.
type Collection struct {
	ID     string        // only trees whose ids begin so, with or without the word sha256
	Unused time.Duration // only trees that no app has got for that long
	Dry    bool          // none: Collect returns the trees that it would remove
}

// Collect removes trees that no app has and no process has open. It returns all the trees
// that it has considered.
func (s *Store) Collect(ctx context.Context, c Collection) (_ []Tree, err error) {
	defer prefix(&err, "collect the trees of images")
	if c.Dry { // a list does not wait until a large image is unpacked
		return s.collect(ctx, c)
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.collect(ctx, c)
}

// collect is Collect for a caller that has the store's lock, which is not needed for a dry run.
func (s *Store) collect(ctx context.Context, c Collection) ([]Tree, error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(c.ID, "sha256:"), treePrefix)
	if strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, invalid("%q is not the beginning of a tree's id, which has the digits 0-9 and a-f", c.ID)
	}
	if !c.Dry {
		if err := s.sweep(); err != nil {
			return nil, err
		}
	}
	found, err := filepath.Glob(filepath.Join(escape(s.dir), treePrefix+digits+"*"))
	if err != nil {
		return nil, err
	}
	aside, err := filepath.Glob(filepath.Join(escape(s.dir), damagedPrefix+"*", treePrefix+digits+"*"))
	if err != nil {
		return nil, err
	}
	// Lock the trees before reading which trees apps have: a process that gives a tree to an
	// app holds the shared lock until the app's directory names the tree.
	var all []*candidate
	defer func() {
		for _, d := range all {
			d.unlock()
		}
	}()
	for _, dir := range append(found, aside...) {
		all = append(all, newCandidate(dir, filepath.Dir(dir) != s.dir, c.Unused))
	}
	apps, err := s.used()
	if err != nil {
		return nil, err
	}
	var trees []Tree
	for _, d := range all {
		if app := apps[d.ID]; app != "" {
			d.Kept = "app " + app + " has it"
		}
		trees = append(trees, d.Tree)
		if d.Kept != "" || c.Dry {
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
	dir  string
	lock *os.File
}

func newCandidate(dir string, broken bool, unused time.Duration) *candidate {
	d := &candidate{dir: dir, Tree: Tree{ID: filepath.Base(dir), Broken: broken}}
	if r, err := readRecord(dir); err == nil {
		d.Name, d.Bytes, d.Time = r.Name, r.Bytes, r.Time
	} else {
		d.Broken = true
	}
	if st, err := os.Stat(filepath.Join(dir, recordFile)); err == nil {
		d.Used = st.ModTime().UTC()
	}
	var err error
	d.lock, err = proc.Lock(dir, os.O_RDONLY, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		d.Kept = "another process has it open"
	case err != nil:
		d.Kept = err.Error()
	case !d.Broken && time.Since(d.Used) < unused:
		d.Kept = "it was used within " + unused.String()
	}
	return d
}

func (d *candidate) unlock() {
	if d.lock != nil {
		d.lock.Close()
	}
}

// discard renames a locked tree, so that it can no longer be found, and then removes it.
func (s *Store) discard(d *candidate) error {
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(d.dir, filepath.Join(tmp, d.ID)); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	d.unlock()
	if parent := filepath.Dir(d.dir); parent != s.dir {
		err = os.Remove(parent)
	}
	return errors.Join(err, os.RemoveAll(tmp))
}

// used returns which trees apps have, with the path of one of the apps in the data directory.
func (s *Store) used() (map[string]string, error) {
	used := map[string]string{}
	data := filepath.Dir(s.dir)
	apps, err := below(data, []string{localDir})
	for range 2 { // apps, NAME
		if err == nil {
			apps, err = below(data, apps)
		}
	}
	debugs, debugErr := below(data, []string{debugDir})
	if debugErr == nil {
		debugs, debugErr = below(data, debugs)
	}
	apps, err = append(apps, debugs...), errors.Join(err, debugErr)
	if err != nil {
		return nil, err
	}
	for _, app := range apps {
		id, err := os.ReadFile(filepath.Join(data, app, IDFile))
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		used[strings.TrimSpace(string(id))] = app
	}
	return used, nil
}

// below returns the directories in directories. A directory may vanish meanwhile.
func below(root string, dirs []string) (all []string, err error) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil && !isGone(err) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				all = append(all, filepath.Join(dir, e.Name()))
			}
		}
	}
	return all, nil
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// escape escapes the characters of a path that mean something in a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

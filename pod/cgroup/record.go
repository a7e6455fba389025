package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// check refuses a record that does not name an app's cgroup.
func (r *Record) check() error {
	if r.Version != 1 && r.Version != 2 || r.Dirs[primary(r.Version)] == "" {
		return fmt.Errorf("version %d with directories %v makes no sense", r.Version, r.Dirs)
	}
	if abs := filepath.Join("/", r.Path); abs != r.Path && abs != "/"+r.Path || abs == "/" {
		return errors.New("the path is not one below the root of a hierarchy, nor below another cgroup")
	}
	for name, dir := range r.made() {
		if err := r.checkDir(name, dir); err != nil {
			return err
		}
	}
	if u := r.Unified; u != "" && (!filepath.IsAbs(u) || filepath.Clean(u) != u || !strings.HasSuffix(u, filepath.Join("/", r.Path))) {
		return fmt.Errorf("%q is not its directory in the unified hierarchy", u)
	}
	if err := r.checkPlaceholder(); err != nil {
		return err
	}
	return r.checkMembers()
}

// checkDir refuses a directory that is not the cgroup's directory in a hierarchy of this name.
// It accepts a hierarchy that is no longer mounted, because no process can be in it.
func (r *Record) checkDir(name, dir string) error {
	root, ok := strings.CutSuffix(dir, filepath.Join("/", r.Path))
	if !ok || !filepath.IsAbs(root) || filepath.Clean(dir) != dir {
		return fmt.Errorf("%q is not its directory for the controller %q", dir, name)
	}
	var st unix.Statfs_t
	switch err := unix.Statfs(root, &st); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look at %s: %w", root, err)
	}
	if int64(st.Type) != magic(name) {
		return fmt.Errorf("%s is not in a hierarchy of its version of cgroups", dir)
	}
	return nil
}

// checkPlaceholder refuses a placeholder that does not name exactly one process.
func (r *Record) checkPlaceholder() error {
	switch p := r.Placeholder; {
	case p == nil:
		return nil
	case p.PID <= 1 || p.StartTime == 0:
		return fmt.Errorf("its placeholder is process %d, started at %d, and that can be none", p.PID, p.StartTime)
	case filepath.Base(r.Path) != scopeApp:
		return errors.New("it has a placeholder, and is in no scope")
	}
	return nil
}

// checkMembers refuses a cgroup if this process, or the machine's first process, is in it or
// below it.
func (r *Record) checkMembers() error {
	for _, who := range []string{"self", "1"} {
		is, err := of(who)
		if err != nil {
			return err
		}
		for name, dir := range r.made() {
			path, err := r.pathOf(name, dir)
			if err != nil {
				return err
			}
			if strings.HasPrefix(is[name]+"/", path+"/") {
				return fmt.Errorf("process %s is in it, for the controller %q, so it is not a container's", who, name)
			}
		}
	}
	return nil
}

// pathOf returns the path of a directory below the root of its hierarchy.
func (r *Record) pathOf(name, dir string) (string, error) {
	if filepath.IsAbs(r.Path) {
		return r.Path, nil
	}
	h, err := host()
	if err != nil {
		return "", err
	}
	root := h.roots[name]
	if h.version == 1 && name == unifiedName {
		root = h.unified
	}
	path, ok := strings.CutPrefix(dir, root+"/")
	if !ok {
		return "", fmt.Errorf("%q is not in the hierarchy of the controller %q", dir, name)
	}
	return "/" + path, nil
}

package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Open returns a cgroup that belongs to another program, to read its statistics. name is a
// path below the root of every hierarchy, or the name of a slice. If the cgroup has no
// directory in a controller's hierarchy, that controller's statistics are zero. The error
// unwraps to fs.ErrNotExist if it has no directory in any hierarchy.
func Open(name string) (*Group, error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	p := path.Clean("/" + name)
	if base := path.Base(p); strings.HasSuffix(base, ".slice") {
		if p, err = expandSlice(base); err != nil {
			return nil, fmt.Errorf("cgroup %q: %w", name, err)
		}
	}
	dirs := h.dirs(p)
	for controller, dir := range dirs {
		if _, err := os.Lstat(dir); err != nil {
			delete(dirs, controller)
		}
	}
	if dirs[primary(h.version)] == "" {
		return nil, fmt.Errorf("cgroup %s: %w", p, fs.ErrNotExist)
	}
	return newGroup(Record{Version: h.version, Path: p, Dirs: dirs}, nil), nil
}

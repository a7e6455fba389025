package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Open returns a cgroup that belongs to another program, to read its statistics. name is
// the name of a slice or a path like Path.Spec, and daemon has containerd's own cgroups. If
// the cgroup has no directory in a controller's hierarchy, that controller's statistics are
// zero. The error unwraps to fs.ErrNotExist if it has no directory in any hierarchy.
func Open(name string, daemon map[string]string) (*Group, error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	p := path.Clean("/" + name)
	if !path.IsAbs(name) {
		p = p[1:]
	}
	if base := path.Base(p); strings.HasSuffix(base, ".slice") {
		if p, err = expandSlice(base); err != nil {
			return nil, fmt.Errorf("cgroup %q: %w", name, err)
		}
	}
	r, err := h.locate(p, daemon)
	if err != nil {
		return nil, err
	}
	for controller, dir := range r.Dirs {
		if _, err := os.Lstat(dir); err != nil {
			delete(r.Dirs, controller)
		}
	}
	// Any hierarchy will do: on version 1 a kubelet with the driver cgroupfs makes no directory in that of the devices.
	if len(r.Dirs) == 0 {
		return nil, fmt.Errorf("cgroup %s: %w", p, fs.ErrNotExist)
	}
	if _, err := os.Lstat(r.Unified); err != nil {
		r.Unified, r.UnifiedMade = "", false
	}
	return newGroup(r, nil), nil
}

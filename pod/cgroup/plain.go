package cgroup

import (
	"context"
	"fmt"
	"os"
)

// MakePlain makes a cgroup without limits, for processes that are in no app, and the cgroups
// above it. The path is below the root of every hierarchy. A new cgroup of the controller cpuset
// accepts no process, so it is not made there. It is no error if the cgroup exists.
func MakePlain(path string) error {
	h, err := host()
	if err != nil {
		return err
	}
	r := h.record(path)
	for _, dir := range distinct(r.made()) {
		if h.version == 1 && dir == r.Dirs["cpuset"] {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return nil
}

// RemoveEmpty removes a cgroup and the cgroups below it from every hierarchy, whichever program
// has made them. While there are processes in one of them, RemoveEmpty retries until ctx is
// done. It is no error if the cgroup is gone.
func RemoveEmpty(ctx context.Context, path string) error {
	h, err := host()
	if err != nil {
		return err
	}
	if err := newGroup(h.record(path), nil).removeDirs(ctx); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}

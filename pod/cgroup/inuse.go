package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// errTaken is the error for a cgroup that another container or program uses.
var errTaken = errors.New("in use")

// InUseError is the error of Create if a client has chosen the path of a cgroup that is in
// use. It unwraps to errdefs.ErrFailedPrecondition.
type InUseError struct {
	Path   string // the path that the client has chosen
	Dir    string // of the cgroup in the hierarchy in which it is locked
	Holder string // the id of the container that has the cgroup, if the caller of Create knows it
	why    error
}

func (e *InUseError) Error() string {
	why := e.why.Error()
	if e.Holder != "" {
		why = "in use by container " + e.Holder
	}
	return fmt.Sprintf("cgroup %s: %s: %s", e.Path, why, errdefs.ErrFailedPrecondition)
}

func (e *InUseError) Unwrap() []error { return []error{e.why, errdefs.ErrFailedPrecondition} }

// usedBy returns the error for a cgroup with processes.
func usedBy(pids []int) error {
	const shown = 5
	if more := len(pids) - shown; more > 0 {
		return fmt.Errorf("%w by the processes %v and %d more", errTaken, pids[:shown], more)
	}
	return fmt.Errorf("%w by the processes %v", errTaken, pids)
}

// Overlaps reports whether two cgroups are the same, or one is below the other. To kill the
// upper one is to kill the processes of both.
func Overlaps(dir, other string) bool {
	return strings.HasPrefix(dir+"/", other+"/") || strings.HasPrefix(other+"/", dir+"/")
}

// apart returns an error that unwraps to errTaken if a living shim has locked a cgroup below
// the group's, or above it. Each shim locks its cgroup and then looks for others, so at least
// one of two finds the other.
//
// st is the state of the group's directory after the cgroup was locked.
func (g *Group) apart(h *hierarchies, st *unix.Stat_t) error {
	dir, version := g.record.Dir(), g.record.Version
	if !childless(st) {
		below, err := lockedBelow(version, dir)
		if err == nil && below != "" {
			err = fmt.Errorf("%w by another container, which has %s below it", errTaken, below)
		}
		if err != nil {
			return err
		}
	}
	root := h.roots[primary(version)]
	for up := filepath.Dir(dir); up != root && len(up) > len(root); up = filepath.Dir(up) {
		st, err := lstatDir(up)
		if err != nil {
			return err
		}
		locked, err := isLocked(version, st.Ino)
		if err != nil {
			return err
		}
		if locked && !h.contains(up) {
			return fmt.Errorf("%w by another container, which has %s above it", errTaken, up)
		}
	}
	return nil
}

// contains reports whether this process is in or below a cgroup. If containerd runs in a
// container, its cgroups are below that container's cgroup.
func (h *hierarchies) contains(dir string) bool {
	own, err := Own()
	if err != nil {
		return false
	}
	controller := primary(h.version)
	return strings.HasPrefix(filepath.Join(h.roots[controller], own[controller])+"/", dir+"/")
}

// lockedBelow returns the name of a cgroup below a directory that a process has locked, or "".
func lockedBelow(version int, dir string) (below string, err error) {
	err = walk(dir, func(p place) error {
		st, err := p.stat()
		if err != nil || p.at == unix.AT_FDCWD { // dir itself
			return err
		}
		locked, err := isLocked(version, st.Ino)
		if err == nil && locked {
			below, err = p.name, fs.SkipAll
		}
		return err
	}, nil)
	return below, err
}

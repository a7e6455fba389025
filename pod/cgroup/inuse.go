package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
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
// st is the state of the group's directory after it was locked.
func (g *Group) apart(h *hierarchies, st *unix.Stat_t) error {
	dir := g.record.Dir()
	if !childless(st) {
		below, err := lockedBelow(dir)
		if err == nil && below != "" {
			err = fmt.Errorf("%w by another container, which has %s below it", errTaken, below)
		}
		if err != nil {
			return err
		}
	}
	root := h.roots[primary(g.record.Version)]
	for up := filepath.Dir(dir); up != root && len(up) > len(root); up = filepath.Dir(up) {
		locked, err := isLocked(up)
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

// lockedBelow returns a cgroup below a directory that a process has locked, or "".
func lockedBelow(dir string) (string, error) {
	subs, err := children(dir)
	if err != nil {
		return "", err
	}
	for _, sub := range subs {
		if locked, err := isLocked(sub); err != nil || locked {
			return sub, err
		}
		if below, err := lockedBelow(sub); err != nil || below != "" {
			return below, err
		}
	}
	return "", nil
}

// isLocked reports whether a process has locked the directory of its cgroup. If the directory
// is replaced meanwhile, the answer is about the one that was there.
func isLocked(dir string) (bool, error) {
	locked, err := proc.Locked(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if isGone(err) {
		return false, nil
	}
	return locked, err
}

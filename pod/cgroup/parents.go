package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// madeByUs is the attribute of a directory of version 2 that exists only because a cgroup below it was made here. On a host
// with both versions nobody else may know that hierarchy: a kubelet makes and removes the cgroup of a pod in those that it
// knows. Only root of the host can set the attribute.
const madeByUs = "trusted.rkt.parent"

// makeBelowParents is makeDir, and marks the parents that it makes, for removeParents.
func makeBelowParents(dir string) (made bool, err error) {
	for range claimTries { // another container's removeParents may be faster
		err = os.Mkdir(dir, dirMode)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		var parent bool
		if parent, err = makeBelowParents(filepath.Dir(dir)); err != nil {
			return false, err
		}
		if parent {
			if err := os.Chmod(filepath.Dir(dir), dirMode); err != nil { // whatever the umask
				return false, err
			}
			_ = unix.Setxattr(filepath.Dir(dir), madeByUs, nil, 0) // without it the directory stays
		}
	}
	return madeDir(err)
}

// removeParents removes the parents of the version 2 directory of a host with both versions that makeBelowParents has made,
// unless there are other cgroups below them.
func (g *Group) removeParents() {
	if !g.record.UnifiedMade {
		return
	}
	for dir := filepath.Dir(g.record.Unified); ; dir = filepath.Dir(dir) {
		if _, err := unix.Getxattr(dir, madeByUs, nil); err != nil || rmdir(dir) != nil {
			return
		}
	}
}

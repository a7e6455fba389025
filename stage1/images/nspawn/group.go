package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// group is a version 2 cgroup in which a container is made. systemd-nspawn makes two more cgroups
// below its own and does not remove them, so it must not be started in the shim's cgroup. On a host
// with version 1 beside version 2, systemd-nspawn makes the two also in name=systemd, at the same
// path. On a host without version 2 it makes none, and group is empty.
type group struct {
	paths []string // of the group, in each hierarchy in which systemd-nspawn makes cgroups
	file  *os.File // paths[0], which has version 2
	// procs and namedProcs are the cgroup.procs files of this process's cgroups in version 2 and in
	// name=systemd, or nil. A container's process moves back there, with all its threads, so that the
	// group can be removed. The app's own cgroup is entered after that.
	procs, namedProcs *os.File
	only2             bool // the host has no version 1
}

const cgroupRoot = "/sys/fs/cgroup"

// unifiedRoot returns the root of version 2 where systemd-nspawn looks for it, or "".
func unifiedRoot() string {
	for _, root := range []string{cgroupRoot, cgroupRoot + "/unified"} {
		var st unix.Statfs_t
		if err := unix.Statfs(root, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return root
		}
	}
	return ""
}

// ownCgroup returns the path of this process's cgroup in a hierarchy: "" is that of version 2.
func ownCgroup(hierarchy string) (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && f[1] == hierarchy {
			return f[2], nil
		}
	}
	return "", fmt.Errorf("/proc/self/cgroup has no hierarchy %q", hierarchy)
}

// newGroup makes a group below this process's cgroup.
func newGroup(name string) (*group, error) {
	root := unifiedRoot()
	if root == "" {
		return &group{}, nil
	}
	own, err := ownCgroup("")
	if err != nil {
		return &group{}, err
	}
	path := filepath.Join(own, name)
	g := &group{paths: []string{filepath.Join(root, path)}, only2: root == cgroupRoot}
	// The group of a supervisor that was killed may be there: its name has the pod's UUID.
	if err := os.Mkdir(g.paths[0], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return g, err
	}
	if g.file, err = os.OpenFile(g.paths[0], unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return g, err
	}
	if g.procs, err = os.OpenFile(filepath.Join(root, own, "cgroup.procs"), os.O_WRONLY, 0); err != nil || g.only2 {
		return g, err
	}
	named := filepath.Join(cgroupRoot, "systemd")
	g.paths = append(g.paths, filepath.Join(named, path))
	if own, err = ownCgroup("name=systemd"); err != nil {
		return g, err
	}
	g.namedProcs, err = os.OpenFile(filepath.Join(named, own, "cgroup.procs"), os.O_WRONLY, 0)
	return g, err
}

// unified returns the value of the variable SYSTEMD_NSPAWN_UNIFIED_HIERARCHY.
func (g *group) unified() string {
	if !g.only2 {
		return "0"
	}
	return "1"
}

func (g *group) close() {
	if g != nil {
		g.file.Close()
		g.procs.Close()
		g.namedProcs.Close()
	}
}

// remove removes the group when it has no processes.
func (g *group) remove() {
	if g == nil {
		return
	}
	for _, path := range g.paths {
		for _, dir := range []string{"payload", "supervisor", ""} {
			_ = os.Remove(filepath.Join(path, dir))
		}
	}
}

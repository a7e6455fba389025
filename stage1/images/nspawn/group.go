package main

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// group is a version 2 cgroup in which a container is made. On a host without version 1
// systemd-nspawn makes two more cgroups below its own and does not remove them, so it must
// not be started in the shim's cgroup. On a host with version 1 it makes none, and group
// is empty.
type group struct {
	path string
	file *os.File
	// procs is the cgroup.procs file of the group's parent. An app without a cgroup of its
	// own uses it to move back there.
	procs *os.File
}

const cgroupRoot = "/sys/fs/cgroup"

// ownCgroup returns the directory of this process's cgroup, or "" on a host with version
// 1.
func ownCgroup() (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return "", nil
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	own, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "0::")
	return filepath.Join(cgroupRoot, own), nil
}

// newGroup makes a group below this process's cgroup.
func newGroup(name string) (*group, error) {
	own, err := ownCgroup()
	if own == "" || err != nil {
		return &group{}, err
	}
	g := &group{path: filepath.Join(own, name)}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return g, err
	}
	if g.file, err = os.OpenFile(g.path, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return g, err
	}
	g.procs, err = os.OpenFile(filepath.Join(own, "cgroup.procs"), os.O_WRONLY, 0)
	return g, err
}

// unified returns the value of the variable SYSTEMD_NSPAWN_UNIFIED_HIERARCHY.
func (g *group) unified() string {
	if g.path == "" {
		return "0"
	}
	return "1"
}

func (g *group) close() {
	if g != nil {
		g.file.Close()
		g.procs.Close()
	}
}

// remove removes the group when it has no processes.
func (g *group) remove() {
	if g == nil || g.path == "" {
		return
	}
	for _, dir := range []string{"payload", "supervisor", ""} {
		_ = os.Remove(filepath.Join(g.path, dir))
	}
}

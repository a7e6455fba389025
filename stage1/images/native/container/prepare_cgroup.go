package container

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cgroup plans a mount of type cgroup, for the version that the host has. On version 2 it
// is one filesystem. On version 1 it is a tmpfs with a directory for each hierarchy in
// which stage 0 has placed the app. If the app has a cgroup namespace, the directory is a
// mount of the hierarchy, otherwise a bind mount of the app's own cgroup.
func (m *mountPlanner) cgroup(planned *mount) error {
	dirs := []string(nil)
	if m.request.Cgroup != nil {
		dirs = m.request.Cgroup.Dirs
	}
	if m.cgroup2 {
		planned.Type, planned.Source, planned.Data = "cgroup2", "cgroup", ""
		return m.ownCgroup2(planned, dirs)
	}
	planned.Type, planned.Source, planned.Data = "cgroup", "cgroup", ""
	for _, dir := range dirs {
		if err := m.hierarchy(planned, dir); err != nil {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// ownCgroup2 prepares a bind mount of the app's cgroup, for a user namespace that does not
// own its cgroup namespace and so may not mount cgroup2.
func (m *mountPlanner) ownCgroup2(planned *mount, dirs []string) error {
	if !m.config.UserNamespace || len(dirs) == 0 {
		return nil
	}
	tree, err := openTree(dirs[0], false)
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", dirs[0], err)
	}
	planned.File = m.prepared.give(tree)
	return m.restrict(tree, planned.Flags)
}

// hierarchy adds the hierarchy that dir is in, once.
func (m *mountPlanner) hierarchy(planned *mount, dir string) error {
	dir, err := filepath.EvalSymlinks(dir) // hosts link cpu to cpu,cpuacct
	if err != nil {
		return err
	}
	top, err := mountPoint(dir)
	if err != nil {
		return err
	}
	h := hierarchy{Name: path.Base(top)}
	if slices.ContainsFunc(planned.Cgroups, func(other hierarchy) bool { return other.Name == h.Name }) {
		return nil
	}
	if m.config.CgroupNamespace {
		h.Data = hierarchyData(h.Name)
		planned.Cgroups = append(planned.Cgroups, h)
		return nil
	}
	tree, err := openTree(dir, false)
	if err != nil {
		return err
	}
	h.File = m.prepared.give(tree)
	planned.Cgroups = append(planned.Cgroups, h)
	return m.restrict(tree, planned.Flags)
}

func (m *mountPlanner) restrict(tree *os.File, flags uintptr) error {
	fd := int(tree.Fd())
	if err := setAttr(fd, false, unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		return err
	}
	return setAttr(fd, false, unix.MountAttr{Attr_set: attributes(flags)})
}

// mountPoint returns the directory in which the filesystem of dir is mounted.
// It asks no mount table: those of busy hosts are long.
func mountPoint(dir string) (string, error) {
	dir = path.Clean(dir)
	dev, err := deviceOf(dir)
	if err != nil {
		return "", err
	}
	for dir != "/" {
		parent := path.Dir(dir)
		d, err := deviceOf(parent)
		if err != nil {
			return "", err
		}
		if d != dev {
			break
		}
		dir = parent
	}
	return dir, nil
}

func deviceOf(p string) (uint64, error) {
	info, err := os.Stat(p)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Dev, nil
}

// hierarchyData turns the name of a hierarchy's directory, which by convention lists its
// controllers, into the options that mount the hierarchy again.
func hierarchyData(name string) string {
	controllers := []string{
		"cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "net_cls",
		"perf_event", "net_prio", "hugetlb", "pids", "rdma", "misc",
	}
	for _, c := range strings.Split(name, ",") {
		if !slices.Contains(controllers, c) {
			return "none,name=" + name
		}
	}
	return name
}

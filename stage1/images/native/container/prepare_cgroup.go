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

// cgroup plans a mount of type cgroup for the host's version of cgroups. On version 2 it
// is a single filesystem. On version 1 it is a tmpfs with a directory for each hierarchy
// that has a cgroup of the app. If the app has a cgroup namespace, each directory is a
// mount of its hierarchy, otherwise a bind mount of the app's own cgroup.
func (m *mountPlanner) cgroup(planned *mount) error {
	dirs := []string(nil)
	if m.request.Cgroup != nil {
		dirs = m.request.Cgroup.Dirs
	}
	if m.cgroup2 {
		planned.Type, planned.Source = "cgroup2", "cgroup"
		if err := m.keepCgroup2(planned); err != nil {
			return err
		}
		return m.ownCgroup2(planned, dirs)
	}
	if planned.Data != "" { // there is no file system that could refuse it
		return refuse("options", "a mount of cgroup version 1 has no option %q", planned.Data)
	}
	planned.Type, planned.Source = "cgroup", "cgroup"
	for _, dir := range dirs {
		if err := m.hierarchy(planned, dir); err != nil {
			return fmt.Errorf("cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// keepCgroup2 adds the options of the host's cgroup2 to a mount of it. In a new cgroup namespace the
// kernel ignores options.
func (m *mountPlanner) keepCgroup2(planned *mount) error {
	if m.config.CgroupNamespace {
		return nil
	}
	options, err := m.hostCgroup2()
	planned.Data = addData(planned.Data, options)
	return err
}

// ownCgroup2 prepares a bind mount of the app's cgroup. It is used if the app's user
// namespace does not own the app's cgroup namespace, and so must not mount cgroup2.
func (m *mountPlanner) ownCgroup2(planned *mount, dirs []string) error {
	if !m.config.UserNamespace || len(dirs) == 0 {
		return nil
	}
	tree, err := openTree(dirs[0])
	if err != nil {
		return fmt.Errorf("open cgroup %s: %w", dirs[0], err)
	}
	planned.File = m.prepared.give(tree)
	return m.restrict(tree, planned.Flags)
}

// hierarchy adds the hierarchy to which dir belongs, unless it was added before.
func (m *mountPlanner) hierarchy(planned *mount, dir string) error {
	dir, err := filepath.EvalSymlinks(dir) // hosts have links such as cpu to cpu,cpuacct
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
	tree, err := openTree(dir)
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

// mountPoint returns the directory on which the filesystem of dir is mounted. It does not
// read the mount table, which is long on busy hosts.
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

// hierarchyData returns the options that mount a hierarchy again. By convention, the name
// of the hierarchy's directory lists its controllers.
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

package enclosure

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// hierarchy is a mount of a cgroup hierarchy.
type hierarchy struct {
	path   string
	fstype string // cgroup or cgroup2
	// data selects the hierarchy when it is mounted again.
	data string
}

// machineHierarchies lists the mounts that show the whole hierarchy.
func machineHierarchies() ([]hierarchy, error) {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, err
	}
	var all []hierarchy
	for _, m := range infos {
		h := hierarchy{path: m.Mountpoint, fstype: m.FSType, data: selector(m)}
		same := func(o hierarchy) bool { return o.fstype == h.fstype && o.data == h.data }
		if m.Root == "/" && !slices.ContainsFunc(all, same) {
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return all, nil
}

// selector returns those options of a v1 mount that select its hierarchy. The others would be
// refused in a cgroup namespace.
func selector(m *mountinfo.Info) string {
	if m.FSType != "cgroup" {
		return ""
	}
	return strings.Join(slices.DeleteFunc(strings.Split(m.VFSOptions, ","), func(o string) bool {
		key, _, _ := strings.Cut(o, "=")
		return slices.Contains([]string{"rw", "ro", "noprefix", "clone_children", "xattr", "release_agent", "cpuset_v2_mode"}, key)
	}), ",")
}

func makeCgroups(hierarchies []hierarchy, name string) error {
	for _, h := range hierarchies {
		dir := filepath.Join(h.path, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		if h.fstype != "cgroup" {
			continue
		}
		// A v1 cpuset takes no process before these files are set.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			b, err := os.ReadFile(filepath.Join(h.path, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, file), bytes.TrimSpace(b), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroups removes the enclosure's cgroups with all cgroups below them. Their processes
// have ended with the enclosure.
func removeCgroups(hierarchies []hierarchy, name string) error {
	var errs []error
	for _, h := range hierarchies {
		errs = append(errs, RemoveTree(filepath.Join(h.path, name)))
	}
	return errors.Join(errs...)
}

// RemoveTree removes a cgroup and those below it, by descriptors: cgroups may be nested deeper than a path can be
// long. There need not be one.
func RemoveTree(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	defer unix.Close(parent)
	if err := removeTree(parent, filepath.Base(path)); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", path, err)
	}
	return nil
}

func removeTree(parent int, name string) error {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(fd, e.Name()))
		}
	}
	if err != nil {
		return err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

// enterCgroups makes the enclosure's cgroups the roots of their hierarchies for the calling
// thread and the processes that it starts. In a hierarchy of version 2 the root must have no
// processes if its children have controllers, so this process enters a cgroup below it.
func enterCgroups(name string) error {
	hierarchies, err := machineHierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := joinCgroup(filepath.Join(h.path, name)); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	for _, h := range hierarchies {
		if err := unix.Unmount(h.path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", h.path, err)
		}
		if err := unix.Mount(h.fstype, h.path, h.fstype, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.data); err != nil {
			return fmt.Errorf("mount the cgroup hierarchy %s %s: %w", h.path, h.data, err)
		}
	}
	for _, h := range hierarchies {
		if h.fstype != "cgroup2" {
			continue
		}
		leaf := filepath.Join(h.path, "init")
		if err := os.Mkdir(leaf, 0o755); err != nil {
			return err
		}
		if err := joinCgroup(leaf); err != nil {
			return err
		}
	}
	return nil
}

func joinCgroup(dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("join a cgroup: %w", err)
	}
	return nil
}

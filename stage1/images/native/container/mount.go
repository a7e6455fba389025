package container

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountAll makes the spec's mounts, in its order.
func (a *appInit) mountAll() error {
	for i := range a.Mounts {
		m := &a.Mounts[i]
		if err := a.mount(m); err != nil {
			source := m.Source
			if source == "" {
				source = m.Type
			}
			return fmt.Errorf("mount %s on %s: %w", source, m.Destination, err)
		}
	}
	return nil
}

func (a *appInit) mount(m *mount) error {
	switch {
	case m.Flags&unix.MS_REMOUNT != 0:
		return a.remount(m)
	case m.Type == "bind":
		return a.bind(m)
	case m.Type == "cgroup":
		return a.mountCgroups(m)
	}
	target, err := a.filesystemTarget(m)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	var below int // what the mount hides, to copy up from
	if m.CopyUp {
		if below, err = unix.Openat(target, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		defer unix.Close(below)
	}
	if err := a.mountFilesystem(m, target); err != nil {
		return err
	}
	return a.dress(m, below)
}

// filesystemTarget returns where a filesystem goes.
func (a *appInit) filesystemTarget(m *mount) (int, error) {
	if m.Type == "proc" || m.Type == "sysfs" {
		// A link there would put the masks of /proc in the wrong place.
		fd, err := a.root.open(m.Destination, unix.O_NOFOLLOW)
		if err == nil {
			defer unix.Close(fd)
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				return -1, err
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return -1, fmt.Errorf("filesystem %s must be mounted on an ordinary directory", m.Type)
			}
		}
	}
	if m.Type == "tmpfs" && !hasData(m.Data, "mode") {
		// A directory of the image's keeps its mode (/tmp is 1777).
		if fd, err := a.root.open(m.Destination, 0); err == nil {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil {
				m.Data = addData(m.Data, fmt.Sprintf("mode=%04o", st.Mode&0o7777))
			}
			unix.Close(fd)
		}
	}
	target, err := a.root.target(m.Destination, false)
	if err != nil {
		return -1, err
	}
	if err := a.checkProc(m, target); err != nil {
		unix.Close(target)
		return -1, err
	}
	return target, nil
}

func (a *appInit) mountFilesystem(m *mount, target int) error {
	err := unix.Mount(m.Source, procPath(target), m.Type, m.Flags, m.Data)
	if m.Type == "cgroup2" && m.File != 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY)) {
		// The cgroup namespace is not our user namespace's.
		return attach(m.File, target)
	}
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("this kernel knows no filesystem %q: %w", m.Type, err)
	}
	return err
}

// dress gives a new mount what mount(2) has no words for.
func (a *appInit) dress(m *mount, below int) error {
	recursive := m.Recursive != unix.MountAttr{}
	if !recursive && len(m.Propagation) == 0 && !m.ReadonlyEnd && !m.CopyUp {
		return nil
	}
	fd, err := a.root.open(m.Destination, 0)
	if err != nil {
		return err
	}
	if m.CopyUp {
		if err := copyUp(below, fd); err != nil {
			unix.Close(fd)
			return fmt.Errorf("copy up: %w", err)
		}
	}
	return a.finishMount(m, fd)
}

// finishMount applies attributes and propagation to an attached mount. It
// takes fd over.
func (a *appInit) finishMount(m *mount, fd int) error {
	if m.ReadonlyEnd {
		a.readonlyEnd = append(a.readonlyEnd, fd)
	} else {
		defer unix.Close(fd)
	}
	if (m.Recursive != unix.MountAttr{}) {
		if err := setAttr(fd, true, m.Recursive); err != nil {
			return fmt.Errorf("set recursive flags: %w", err)
		}
	}
	for _, p := range m.Propagation {
		if err := setAttr(fd, p&unix.MS_REC != 0, unix.MountAttr{Propagation: uint64(p &^ unix.MS_REC)}); err != nil {
			return fmt.Errorf("set propagation: %w", err)
		}
	}
	return nil
}

func (a *appInit) bind(m *mount) error {
	target, err := a.root.target(m.Destination, m.OnFile)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	var st unix.Stat_t
	if err := unix.Fstat(target, &st); err != nil {
		return err
	}
	if directory := st.Mode&unix.S_IFMT == unix.S_IFDIR; directory == m.OnFile {
		return unix.ENOTDIR // as mount(2) says; move_mount(2) has no word for it
	}
	if err := a.checkProc(m, target); err != nil {
		return err
	}
	if err := attach(m.File, target); err != nil {
		return err
	}
	return a.finishMount(m, m.File)
}

// remount changes a mount that is there, made by an earlier entry.
func (a *appInit) remount(m *mount) error {
	fd, err := a.root.open(m.Destination, 0)
	if err != nil {
		return err
	}
	if err := unix.Mount(m.Source, procPath(fd), m.Type, m.Flags, m.Data); err != nil {
		unix.Close(fd)
		return err
	}
	return a.finishMount(m, fd)
}

// checkProc refuses mounts that would hide what the app's /proc says, but for
// the files that lxcfs and its like supply. /proc itself must be one.
func (a *appInit) checkProc(m *mount, target int) error {
	where, err := a.root.resolved(target)
	if err != nil {
		return err
	}
	rest, inside := strings.CutPrefix(where, "/proc/")
	switch {
	case where == "/proc":
		return a.checkProcItself(m, where)
	case !inside:
		return nil
	}
	allowed := []string{
		"cpuinfo", "diskstats", "loadavg", "meminfo", "slabinfo", "stat", "swaps", "uptime",
		"sys/crypto/fips_enabled", "sys/kernel/ns_last_pid",
	}
	if slices.Contains(allowed, path.Clean(rest)) {
		return nil
	}
	return fmt.Errorf("%q cannot be mounted because it is inside /proc", where)
}

func (a *appInit) checkProcItself(m *mount, where string) error {
	if m.Type == "proc" {
		return nil
	}
	if m.Type == "bind" {
		var st unix.Statfs_t
		if err := unix.Fstatfs(m.File, &st); err != nil {
			return err
		}
		if st.Type == unix.PROC_SUPER_MAGIC {
			return nil
		}
	}
	return fmt.Errorf("%q cannot be mounted because it is not of type proc", where)
}

// mountCgroups makes the version 1 view: a tmpfs with a directory per
// hierarchy, and a link per controller of those that have several.
func (a *appInit) mountCgroups(m *mount) error {
	target, err := a.root.target(m.Destination, false)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if err := a.checkProc(m, target); err != nil {
		return err
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", procPath(target), "tmpfs", safe, addData("mode=755", contextOption(a.MountLabel))); err != nil {
		return err
	}
	top, err := a.root.open(m.Destination, 0)
	if err != nil {
		return err
	}
	for _, h := range m.Cgroups {
		if err := h.mount(top, safe|m.Flags); err != nil {
			unix.Close(top)
			return fmt.Errorf("hierarchy %s: %w", h.Name, err)
		}
	}
	if m.Flags&unix.MS_RDONLY != 0 {
		if err := setAttr(top, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			unix.Close(top)
			return err
		}
	}
	return a.finishMount(m, top)
}

func (h hierarchy) mount(top int, flags uintptr) error {
	dir, err := ensure(top, h.Name, false)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if h.File != 0 {
		err = attach(h.File, dir)
		unix.Close(h.File)
	} else {
		err = unix.Mount("cgroup", procPath(dir), "cgroup", flags, h.Data)
	}
	if err != nil {
		return err
	}
	for _, c := range strings.Split(h.Name, ",") {
		if c == h.Name {
			break
		}
		if err := unix.Symlinkat(h.Name, top, c); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

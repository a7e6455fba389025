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
func (a *builder) mountAll() error {
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

// mount makes one mount. It opens the destination only once, because the destination may be
// in a volume in which another container renames files. Every other step uses descriptors:
// the mount is made, filled and given its flags while it is detached, and then attached to
// the open destination.
func (a *builder) mount(m *mount) error {
	switch {
	case m.Flags&unix.MS_REMOUNT != 0:
		return a.remount(m)
	case m.Type == "bind":
		return a.bind(m)
	}
	target, err := a.filesystemTarget(m)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if m.Type == "cgroup" {
		return a.mountCgroups(m, target)
	}
	fd, err := a.newFilesystem(m)
	if err != nil {
		return err
	}
	if m.CopyUp {
		if err := copyUp(target, fd); err != nil {
			return fmt.Errorf("copy up: %w", err)
		}
	}
	return a.attachMount(m, fd, target)
}

// filesystemTarget opens the destination of a filesystem.
func (a *builder) filesystemTarget(m *mount) (int, error) {
	ordinary, flags := m.Type == "proc" || m.Type == "sysfs", uint64(0)
	if ordinary {
		// If the destination were a link, the masks of /proc would be mounted in the wrong
		// place.
		flags = unix.O_NOFOLLOW
	}
	target, made, err := a.target(m, flags)
	if err != nil {
		return -1, err
	}
	if err := a.suits(m, target, made, ordinary); err != nil {
		unix.Close(target)
		return -1, err
	}
	return target, nil
}

// target opens the destination of an entry, and makes it if it is missing.
func (a *builder) target(m *mount, flags uint64) (fd int, made bool, err error) {
	if below, ok := strings.CutPrefix(m.Destination, "/dev/"); ok && a.dev >= 0 {
		return root{fd: a.dev}.target(below, flags, m.OnFile)
	}
	return a.root.target(m.Destination, flags, m.OnFile)
}

// suits returns an error if a filesystem must not be mounted on target. A tmpfs gets the
// mode of the image's directory (/tmp has 1777).
func (a *builder) suits(m *mount, target int, made, ordinary bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(target, &st); err != nil {
		return err
	}
	if ordinary && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("filesystem %s must be mounted on an ordinary directory", m.Type)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR // the error of mount(2); that of move_mount(2) is less clear
	}
	if m.Type == "tmpfs" && !made && !hasData(m.Data, "mode") {
		m.Data = addData(m.Data, fmt.Sprintf("mode=%04o", st.Mode&0o7777))
	}
	return a.checkProc(m, target)
}

// heldMount is a mount of an earlier entry that is not finished yet.
type heldMount struct {
	entry       *mount
	fd          int
	readonlyEnd bool // make it read-only when all mounts are done
}

// attachMount gives a mount the flags of its entry and attaches it.
func (a *builder) attachMount(m *mount, fd, target int) error {
	if err := m.restrict(fd); err != nil {
		return err
	}
	if err := attach(fd, target); err != nil {
		return err
	}
	return a.complete(m, fd)
}

// restrict sets the flags that apply to a mount and all mounts below it.
func (m *mount) restrict(fd int) error {
	if m.Recursive == (unix.MountAttr{}) {
		return nil
	}
	if err := setAttr(fd, true, m.Recursive); err != nil {
		return fmt.Errorf("set recursive flags: %w", explainLocked(fd, err))
	}
	return nil
}

// propagate sets the propagation of an attached mount.
func (m *mount) propagate(fd int) error {
	for _, p := range m.Propagation {
		if err := setAttr(fd, p&unix.MS_REC != 0, unix.MountAttr{Propagation: uint64(p &^ unix.MS_REC)}); err != nil {
			return fmt.Errorf("set propagation: %w", err)
		}
	}
	return nil
}

// complete finishes an attached mount. It sets the propagation again, because attaching may
// have changed it: the propagation depends on the parent mount.
func (a *builder) complete(m *mount, fd int) error {
	if m.Destination == "/dev" {
		a.dev = fd
	}
	if err := m.propagate(fd); err != nil {
		return err
	}
	remounted := slices.ContainsFunc(a.Mounts, func(later mount) bool {
		return later.Flags&unix.MS_REMOUNT != 0 && later.Destination == m.Destination
	})
	if remounted || m.ReadonlyEnd {
		a.held = append(a.held, heldMount{m, fd, m.ReadonlyEnd})
	}
	return nil
}

func (a *builder) bind(m *mount) error {
	target, _, err := a.target(m, 0)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	var st unix.Stat_t
	if err := unix.Fstat(target, &st); err != nil {
		return err
	}
	if directory := st.Mode&unix.S_IFMT == unix.S_IFDIR; directory == m.OnFile {
		return unix.ENOTDIR // the error of mount(2); that of move_mount(2) is less clear
	}
	if err := a.checkProc(m, target); err != nil {
		return err
	}
	return a.attachMount(m, m.File, target)
}

// remount changes the mount of an earlier entry with the same destination. It uses the
// descriptor of that mount and does not look up the destination again.
func (a *builder) remount(m *mount) error {
	for i := len(a.held) - 1; i >= 0; i-- {
		h := &a.held[i]
		if h.entry.Destination != m.Destination {
			continue
		}
		if err := unix.Mount(m.Source, procPath(h.fd), m.Type, m.remountFlags(h.entry), m.Data); err != nil {
			return err
		}
		h.readonlyEnd = h.readonlyEnd || m.ReadonlyEnd
		if err := m.restrict(h.fd); err != nil {
			return err
		}
		return m.propagate(h.fd)
	}
	return errors.New("no earlier mount of the spec has this destination, so there is nothing to remount")
}

// checkProc refuses mounts that would hide files of the app's /proc. It accepts mounts on
// the files that lxcfs and similar programs supply. A mount on /proc itself must be a
// procfs.
func (a *builder) checkProc(m *mount, target int) error {
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

func (a *builder) checkProcItself(m *mount, where string) error {
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

// mountCgroups makes the view of version 1: a tmpfs with a directory for each hierarchy,
// and a link for each controller of a hierarchy with several controllers. The tmpfs is
// attached first, because kernels before 6.15 cannot mount in a detached mount.
func (a *builder) mountCgroups(m *mount, target int) error {
	options := []parameter{{key: "mode", value: "755"}}
	if a.MountLabel != "" {
		options = append(options, parameter{key: "context", value: a.MountLabel})
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	top, err := fsmount("tmpfs", "tmpfs", options, attributes(safe))
	if err != nil {
		return err
	}
	a.keep(top)
	if err := attach(top, target); err != nil {
		return err
	}
	for _, h := range m.Cgroups {
		if err := h.mount(top, safe|m.Flags); err != nil {
			return fmt.Errorf("hierarchy %s: %w", h.Name, err)
		}
	}
	if m.Flags&unix.MS_RDONLY != 0 {
		if err := setAttr(top, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return err
		}
	}
	if err := m.restrict(top); err != nil {
		return err
	}
	return a.complete(m, top)
}

func (h hierarchy) mount(top int, flags uintptr) error {
	dir, err := ensure(top, h.Name, false)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if h.File != 0 {
		err = attach(h.File, dir)
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

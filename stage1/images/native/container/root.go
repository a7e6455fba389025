package container

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// bindRoot makes the app's root a mount, so that it can become "/", and keeps mounts of this
// namespace from propagating to the host's.
func (a *builder) bindRoot() error {
	propagation := uintptr(unix.MS_SLAVE | unix.MS_REC)
	if a.Rootfs.Propagation&unix.MS_SHARED != 0 {
		// With shared propagation, mounts of the host must stay peers of those in the app.
		propagation = a.Rootfs.Propagation
	}
	if err := unix.Mount("", "/", "", propagation, ""); err != nil {
		return fmt.Errorf("set the propagation of /: %w", err)
	}
	if propagation&unix.MS_SHARED != 0 {
		if err := parentPrivate(a.Rootfs.Path); err != nil {
			return err
		}
	}
	return a.attachRoot()
}

// attachRoot mounts the app's root on itself. In a mount namespace that was joined, it
// mounts the root on the directory with the same path.
func (a *builder) attachRoot() (err error) {
	tree := a.Rootfs.File
	if tree == 0 {
		tree, err = unix.OpenTree(unix.AT_FDCWD, a.Rootfs.Path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	}
	if err != nil {
		return fmt.Errorf("open rootfs %s: %w", a.Rootfs.Path, err)
	}
	if slices.ContainsFunc(a.Mounts, func(m mount) bool { return m.aside() }) {
		if err := a.openAside(); err != nil {
			return err
		}
	}
	a.keep(tree)
	if a.Rootfs.NoPivotRoot { // moveRoot unmounts mounts of the host, in this namespace only
		if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("set the propagation of /: %w", err)
		}
	}
	target, err := unix.Open(a.Rootfs.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open rootfs %s: %w", a.Rootfs.Path, err)
	}
	defer unix.Close(target)
	if err := attach(tree, target); err != nil {
		return fmt.Errorf("bind mount rootfs %s: %w", a.Rootfs.Path, err)
	}
	return a.root.set(tree)
}

// parentPrivate makes the mount that contains dir private. pivot_root(2) requires a private
// mount, and below a shared one the bind mount would appear on the host. mount(2) changes a
// mount only at its root, so parentPrivate tries dir and then the directories above it,
// until one succeeds.
func parentPrivate(dir string) error {
	for {
		err := unix.Mount("", dir, "", unix.MS_PRIVATE, "")
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINVAL) || dir == "/" {
			return fmt.Errorf("make mount %s private: %w", dir, err)
		}
		dir = path.Dir(dir)
	}
}

// enterRoot makes the app's root "/", and unmounts the host's.
func (a *builder) enterRoot() error {
	enter := pivot
	switch {
	case a.Rootfs.Chroot:
		enter = changeRoot
	case a.Rootfs.NoPivotRoot:
		enter = moveRoot
	}
	if err := enter(a.root.fd); err != nil {
		return err
	}
	a.root.path = "/"
	p := a.Rootfs.Propagation
	if p == 0 {
		return nil
	}
	// Do this only now: before, it would have changed the mount of the host's "/".
	return doing("set the propagation of the app's /", unix.Mount("", "/", "", p, ""))
}

// pivot mounts the old root on top of the new one and unmounts it there, so no directory is
// needed for it.
func pivot(newRoot int) error {
	oldRoot, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /: %w", err)
	}
	defer unix.Close(oldRoot)
	return inOrder(
		func() error { return doing("enter the rootfs", unix.Fchdir(newRoot)) },
		func() error { return doing("pivot_root", unix.PivotRoot(".", ".")) },
		func() error { return doing("return to the old root", unix.Fchdir(oldRoot)) },
		// Make it a slave, so that the unmount does not propagate to the host's mounts.
		func() error {
			return doing("make the old root a slave", unix.Mount("", ".", "", unix.MS_SLAVE|unix.MS_REC, ""))
		},
		func() error { return doing("unmount the old root", unix.Unmount(".", unix.MNT_DETACH)) },
		func() error { return doing("enter the new root", unix.Chdir("/")) },
	)
}

// closeMounts makes those mounts read-only that had to stay writable until now.
func (a *builder) closeMounts() error {
	readonly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	for _, h := range a.held {
		if h.readonlyEnd {
			if err := setAttr(h.fd, false, readonly); err != nil {
				return fmt.Errorf("make the mount on %s read-only: %w", h.entry.Destination, err)
			}
		}
	}
	if !a.Rootfs.Readonly {
		return nil
	}
	return doing("make / read-only", unix.MountSetattr(unix.AT_FDCWD, "/", 0, &readonly))
}

// protect makes paths read-only and hides others.
func (a *builder) protect() error {
	for _, p := range a.Readonly {
		if err := doing("make "+p+" read-only", a.onExisting(p, a.makeReadonly)); err != nil {
			return err
		}
	}
	for _, p := range a.Masked {
		if err := doing("mask "+p, a.onExisting(p, a.mask)); err != nil {
			return err
		}
	}
	return nil
}

// onExisting opens a path and calls protect. If the path does not exist, it needs no
// protection.
func (a *builder) onExisting(p string, protect func(fd int) error) error {
	fd, err := a.root.open(p, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	} else if err != nil {
		return err
	}
	defer unix.Close(fd)
	return protect(fd)
}

// makeReadonly covers a file with a read-only copy of its mount. The app's root is made read-only
// itself, as for root.readonly: a process does not look for "/" in a mount that covers it.
func (a *builder) makeReadonly(fd int) error {
	readonly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	isRoot, err := a.root.is(fd)
	if err != nil {
		return err
	}
	if isRoot {
		return setAttr(fd, false, readonly)
	}
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := setAttr(tree, false, readonly); err != nil {
		return err
	}
	return attach(tree, fd)
}

func (a *builder) mask(fd int) error {
	isRoot, err := a.root.is(fd)
	if err != nil {
		return err
	}
	if isRoot {
		return errors.New("this is the app's root, which a mount on it does not hide")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return a.maskDirectory(fd)
	}
	null, err := a.openNull()
	if err != nil {
		return err
	}
	defer unix.Close(null)
	return attachCopy(null, fd)
}

// maskDirectory covers a directory with an empty one. All masks of an app share one tmpfs,
// because a new filesystem is expensive. Like its mounts, the filesystem is read-only: it stays
// empty also if a process of the app could make a mount of it writable.
func (a *builder) maskDirectory(dir int) error {
	if a.empty >= 0 {
		return attachCopy(a.empty, dir)
	}
	options := []parameter{{key: "ro", flag: true}, {key: "nr_blocks", value: "1"}, {key: "nr_inodes", value: "1"}}
	if a.MountLabel != "" {
		options = append(options, parameter{key: "context", value: a.MountLabel})
	}
	empty, err := fsmount("tmpfs", "tmpfs", options, unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return fmt.Errorf("make an empty directory: %w", err)
	}
	a.keep(empty)
	a.empty = empty
	// Attach the mount before it is copied, because older kernels copy only attached
	// mounts.
	return attach(a.empty, dir)
}

// attachCopy mounts another copy of a mount or file on target. fd refers to the mount or
// file.
func attachCopy(fd, target int) error {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return attach(tree, target)
}

package container

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// makeDevices makes the nodes that every app gets by the OCI spec, and the nodes of the
// app's spec.
func (a *builder) makeDevices() error {
	for i := range a.Devices {
		d := &a.Devices[i]
		if err := a.makeDevice(d); err != nil {
			return fmt.Errorf("make device %s: %w", d.Path, err)
		}
	}
	return nil
}

func (a *builder) makeDevice(d *device) error {
	clean, err := a.root.follow(path.Dir(d.Path))
	if err != nil {
		return err
	}
	dir, err := a.root.directory(clean)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := path.Base(d.Path)
	if d.File != 0 {
		defer unix.Close(d.File)
		target, err := ensure(dir, name, true)
		if err != nil {
			return err
		}
		defer unix.Close(target)
		if mounted, err := isMountPoint(target); mounted || err != nil {
			return err
		}
		return attach(d.File, target)
	}
	if err := unix.Mknodat(dir, name, d.Mode, int(d.Dev)); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return finishNode(dir, name, d)
}

// isMountPoint reports whether fd, which is in the place of a node, is one of the spec's
// mounts. Such a mount stays: a client may mount /dev/urandom on /dev/random.
func isMountPoint(fd int) (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, 0, &st); err != nil {
		return false, err
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// finishNode sets the owner and mode of a node, which this process has made or which the
// image has. It refuses any other file in the place of the node.
func finishNode(dir int, name string, d *device) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if mounted, err := isMountPoint(fd); mounted || err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != d.Mode&unix.S_IFMT || st.Mode&unix.S_IFMT != unix.S_IFIFO && st.Rdev != d.Dev {
		return errors.New("something else is in its place")
	}
	if st.Mode&0o7777 != d.Mode&0o7777 {
		if err := unix.Chmod(procPath(fd), d.Mode&0o7777); err != nil {
			return err
		}
	}
	if st.Uid == d.UID && st.Gid == d.GID {
		return nil
	}
	return unix.Fchownat(fd, "", int(d.UID), int(d.GID), unix.AT_EMPTY_PATH)
}

// linkDevices makes the symbolic links that programs expect in /dev.
func (a *builder) linkDevices() error {
	dev, _, err := a.root.target("/dev", 0, false)
	if err != nil {
		return fmt.Errorf("open /dev: %w", err)
	}
	defer unix.Close(dev)
	links := [][2]string{
		{"fd", "/proc/self/fd"},
		{"stdin", "/proc/self/fd/0"},
		{"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"},
	}
	if unix.Access("/proc/kcore", unix.F_OK) == nil { // some kernels have no /proc/kcore
		links = append(links, [2]string{"core", "/proc/kcore"})
	}
	for _, l := range links {
		if err := unix.Symlinkat(l[1], dev, l[0]); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("link /dev/%s: %w", l[0], err)
		}
	}
	// Remove a file of the image, because it is not the multiplexer of the app's own
	// devpts.
	if err := unix.Unlinkat(dev, "ptmx", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove /dev/ptmx: %w", err)
	}
	if err := unix.Symlinkat("pts/ptmx", dev, "ptmx"); err != nil {
		return fmt.Errorf("link /dev/ptmx: %w", err)
	}
	return nil
}

// openNull opens the app's /dev/null, if it is the null device.
func openNull() (int, error) {
	fd, err := unix.Open("/dev/null", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/null: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !proc.IsNull(&st) {
		unix.Close(fd)
		return -1, errors.New("/dev/null is not the null device")
	}
	return fd, nil
}

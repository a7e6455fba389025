package container

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

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
	dir, err := a.deviceDirectory(path.Dir(d.Path))
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
	err = unix.Mknodat(dir, name, d.Mode, int(d.Dev))
	if made := err == nil; made || errors.Is(err, unix.EEXIST) {
		return finishNode(dir, name, d, made)
	}
	return err
}

// openDev opens the image's /dev, before a volume can be mounted there, if the spec mounts nothing on it.
func (a *builder) openDev() error {
	if slices.ContainsFunc(a.Mounts, func(m mount) bool { return m.Destination == "/dev" }) {
		return nil // complete keeps that mount
	}
	dev, _, err := a.root.target("/dev", unix.O_DIRECTORY, false)
	if err != nil {
		return fmt.Errorf("open /dev: %w", err)
	}
	a.keep(dev)
	own, err := a.root.sameMount(dev)
	if err == nil && !own {
		err = errors.New("/dev is another mount than the root, so that its files may be the host's: have the spec mount a tmpfs on /dev")
	}
	a.dev = dev
	return err
}

// deviceDirectory opens the directory of a device, and makes it if it is missing.
func (a *builder) deviceDirectory(p string) (int, error) {
	if below, ok := strings.CutPrefix(p+"/", "/dev/"); ok {
		return root{fd: a.dev}.directory(below)
	}
	clean, err := a.root.follow(p)
	if err != nil {
		return -1, err
	}
	if clean != p { // the image may lead into a volume; the spec says so itself, if it wants that
		own, err := a.inImage(clean)
		if err != nil {
			return -1, err
		}
		if !own {
			return -1, fmt.Errorf("its directory is a link of the image into another mount, %s", clean)
		}
	}
	return a.root.directory(clean)
}

// inImage reports whether a path, or the last directory above it that exists, is on the root's mount.
func (a *builder) inImage(clean string) (bool, error) {
	for {
		fd, err := a.root.open(clean, 0)
		if errors.Is(err, unix.ENOENT) {
			clean = path.Dir(clean)
			continue
		}
		if err != nil {
			return false, err
		}
		defer unix.Close(fd)
		return a.root.sameMount(fd)
	}
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

// finishNode sets the owner and mode of a node that this process has made. A node that was there
// keeps its own, and any other file in the place of the node is refused.
func finishNode(dir int, name string, d *device, made bool) error {
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
	if !made {
		return nil
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
		if err := unix.Symlinkat(l[1], a.dev, l[0]); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("link /dev/%s: %w", l[0], err)
		}
	}
	// Remove a file of the image, because it is not the multiplexer of the app's own
	// devpts.
	if err := unix.Unlinkat(a.dev, "ptmx", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove /dev/ptmx: %w", err)
	}
	if err := unix.Symlinkat("pts/ptmx", a.dev, "ptmx"); err != nil {
		return fmt.Errorf("link /dev/ptmx: %w", err)
	}
	return nil
}

// openNull opens the app's /dev/null, if it is the null device.
func (a *builder) openNull() (int, error) {
	fd, err := unix.Openat(a.dev, "null", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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

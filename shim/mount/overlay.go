package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const (
	overlay  = "overlay"
	lowerdir = "lowerdir="
	// spare is the part of a page that is left for commas.
	spare = 512
)

// layers returns the lower directories of an overlay, and which of the options has them.
func layers(data []string) (dirs []string, index int) {
	index = slices.IndexFunc(data, func(o string) bool { return strings.HasPrefix(o, lowerdir) })
	if index < 0 {
		return nil, index
	}
	return strings.Split(data[index][len(lowerdir):], ":"), index
}

// commonDir returns the directory that has all of dirs below it, or "".
func commonDir(dirs []string) string {
	// What the first and the last have in common, all have.
	first, last := slices.Min(dirs), slices.Max(dirs)
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	// The names of snapshots are numbers, so 1 may be the beginning of 10.
	dir := filepath.Dir(first[:n])
	if dir == "." || dir == "/" {
		return ""
	}
	return dir
}

// shorten returns options that are longer than a page with the lower directories relative to
// the directory dir.
func shorten(data []string) (dir string, short []string) {
	size := 0
	for _, o := range data {
		size += len(o)
	}
	dirs, index := layers(data)
	if size < os.Getpagesize()-spare || len(dirs) < 2 {
		return "", data
	}
	if dir = commonDir(dirs); dir == "" {
		return "", data
	}
	for i, d := range dirs {
		if len(d) <= len(dir)+1 {
			return "", data
		}
		dirs[i] = d[len(dir)+1:]
	}
	short = slices.Clone(data)
	short[index] = lowerdir + strings.Join(dirs, ":")
	return dir, short
}

// mountIn calls mount(2) in a directory of this thread's mount namespace, unless that is "".
func mountIn(dir, source, target, kind string, flags uintptr, data string) error {
	if dir == "" {
		return unix.Mount(source, target, kind, flags, data)
	}
	here, err := proc.OpenFile("/proc/thread-self/ns/mnt", os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer here.Close()
	root, err := proc.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	return proc.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(int(here.Fd()), unix.CLONE_NEWNS); err != nil {
			return err
		}
		// The namespace may have another root than this process.
		if err := unix.Fchdir(int(root.Fd())); err != nil {
			return err
		}
		if err := unix.Chroot("."); err != nil {
			return err
		}
		if err := unix.Chdir(dir); err != nil {
			return err
		}
		return unix.Mount(source, target, kind, flags, data)
	})
}

// mountMappedOverlay mounts an overlay whose lower directories are mapped to a user namespace.
// The kernel maps no overlay itself. A mapped mount of the directory that has all layers exists
// until the overlay is mounted.
func (o options) mountMappedOverlay(source, target string, user *os.File) (err error) {
	dirs, index := layers(o.data)
	if index < 0 {
		return fmt.Errorf("an overlay without %s cannot be mapped: %w", strings.TrimSuffix(lowerdir, "="), unix.EINVAL)
	}
	common := commonDir(dirs)
	if !filepath.IsAbs(dirs[0]) { // they are parts, which are in the working directory
		common = "."
	}
	if common == "" {
		return fmt.Errorf("the layers %q have no directory in common: %w", dirs, unix.EINVAL)
	}
	mapped, err := os.MkdirTemp(temporary(), "ovl-idmapped")
	if err != nil {
		return err
	}
	defer os.Remove(mapped)
	if err := mapIDs(common, mapped, user, unix.MOUNT_ATTR_RDONLY); err != nil {
		return err
	}
	defer func() { _ = unix.Unmount(mapped, unix.MNT_DETACH) }()
	for i, d := range dirs {
		dirs[i] = filepath.Join(mapped, strings.TrimPrefix(d, common))
	}
	o.data[index] = lowerdir + strings.Join(dirs, ":")
	return o.mount(overlay, source, target)
}

// temporary returns the directory for temporary mounts, which is the same as containerd's.
func temporary() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return dir
	}
	return os.TempDir()
}

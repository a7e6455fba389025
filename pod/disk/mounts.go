package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// unmountTree unmounts everything that is mounted at or below a path.
func unmountTree(path string) error {
	if err := Unmount(path); err != nil {
		return err
	}
	return unmountMounts(path, false)
}

// UnmountBelow unmounts everything that is mounted below a pod's directory, as
// rkt does before it removes one. It makes every mount private first, because a
// stage1 such as fly may have bound trees of the host there, and an unmount must
// not propagate to the host. If a mount is left, it returns an error, and
// nothing may be removed.
func UnmountBelow(path string) error { return unmountMounts(path, true) }

// removeMounted unmounts what is mounted below a directory, and removes the directory. If it is gone
// or empty, no list of mounts is read.
func removeMounted(dir string) error {
	if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := UnmountBelow(dir); err != nil {
		return err
	}
	return proc.RemoveAll(dir)
}

func unmountMounts(path string, private bool) error {
	mounts, err := mountsBelow(path)
	if err != nil {
		return err
	}
	if len(mounts) == 0 {
		return nil
	}
	if private {
		for _, m := range mounts {
			if err := unix.Mount("", m, "", unix.MS_PRIVATE, ""); err != nil && !isNoMount(err) {
				return fmt.Errorf("make %s private: %w", m, err)
			}
		}
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := Unmount(mounts[i]); err != nil {
			return err
		}
	}
	left, err := mountsBelow(path)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%s is still a mount point", left[0])
	}
	return nil
}

func isNoMount(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist)
}

// mountsBelow lists the mount points at and below a path, parents first: the
// kernel lists mounts in the order in which they were made.
func mountsBelow(path string) ([]string, error) {
	// The kernel's list has no symlinks. Do not resolve the last element,
	// because it is the path that will be unmounted or removed.
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	path = filepath.Join(parent, filepath.Base(path))
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != path && !strings.HasPrefix(i.Mountpoint, path+"/"), false
	})
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var mounts []string
	for _, i := range infos {
		mounts = append(mounts, strings.TrimSuffix(i.Mountpoint, "//deleted"))
	}
	return mounts, nil
}

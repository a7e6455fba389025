package stage1

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"golang.org/x/sys/unix"
)

// Files of a pod directory that are the stage1's.
const (
	treeIDFile   = "stage1TreeStoreID"
	manifestFile = "stage1/manifest"
	rootfsDir    = "stage1/rootfs"
)

// writable lists the directories of a pod that are mounted over the image's
// read-only tree: where they are in the pod, and where they appear.
var writable = [...]struct{ dir, at string }{
	{"stage1/rkt", rootfsDir + "/rkt"},
	{"stage1/stage2", rootfsDir + "/opt/stage2"},
}

// StatusDir returns where a pod's exits are recorded. Unlike abi.StatusDir it is
// the same directory whether the stage1's tree is attached or not.
func StatusDir(podDir string) string { return filepath.Join(podDir, "stage1/rkt/status") }

// Attach makes the image visible in a pod directory: its manifest and digest,
// and below stage1/rootfs its tree, read-only, with the pod's own directories
// over rkt and opt/stage2. On failure nothing stays mounted.
func (i *Image) Attach(dir string) error {
	if err := i.prepare(dir); err != nil {
		return fmt.Errorf("attach stage1 %s: %w", i.manifest.name, err)
	}
	if err := i.mount(dir); err != nil {
		return errors.Join(fmt.Errorf("attach stage1 %s: %w", i.manifest.name, err), i.Detach(dir))
	}
	return nil
}

func (i *Image) prepare(dir string) error {
	for _, d := range []string{rootfsDir, "stage1/rkt/status", "stage1/rkt/env", "stage1/stage2"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, manifestFile), i.text, 0o640); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, treeIDFile), []byte(i.digest), 0o640)
}

func (i *Image) mount(dir string) error {
	if err := bind(filepath.Join(i.dir, "rootfs"), filepath.Join(dir, rootfsDir), unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV); err != nil {
		return err
	}
	for _, w := range writable {
		if err := bind(filepath.Join(dir, w.dir), filepath.Join(dir, w.at), unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a directory on another, privately and with attributes. The mount
// is complete before it is visible.
func bind(from, to string, attr uint64) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("clone the mount of %s: %w", from, err)
	}
	defer unix.Close(fd)
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE})
	if err != nil {
		return fmt.Errorf("set attributes of the mount of %s: %w", from, err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}

// Detach unmounts what Attach has mounted, in one step and whoever still uses
// it. It is idempotent.
func (i *Image) Detach(dir string) error {
	rootfs := filepath.Join(dir, rootfsDir)
	for {
		err := unix.Unmount(rootfs, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", rootfs, err)
		}
	}
}

// entrypoint returns the path of an entrypoint in a pod.
func (i *Image) entrypoint(dir string, e abi.Entrypoint) string {
	return filepath.Join(dir, rootfsDir) + i.manifest.paths[e]
}

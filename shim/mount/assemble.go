package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// All makes the mounts of a root file system in order. After an error nothing is mounted. Symbolic links do not lead
// out of root.
func All(ctx context.Context, mounts []*types.Mount, root string) error {
	steps, parts, err := Steps(mounts)
	if err != nil {
		return err
	}
	if parts > 0 {
		return assemble(ctx, steps, parts, root)
	}
	for i := range steps {
		if err := mountOne(ctx, &steps[i], root); err != nil {
			// Unmount the failed one, too: a bind mount may exist although changing its flags has failed.
			return errors.Join(err, Unmount(mounts[:i+1], root))
		}
	}
	return nil
}

// mountOne makes one of the mounts of a root.
func mountOne(ctx context.Context, m *abi.Mount, root string) error {
	err := context.Cause(ctx)
	if err == nil {
		err = Mount(ctx, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options}, root)
	}
	if err != nil {
		return fmt.Errorf("mount %s of type %s: %w", m.Source, m.Type, err)
	}
	return nil
}

// assemble mounts parts and what is made of them in a mount namespace that only one thread has, and the result on
// root. An overlay keeps its layers, so the parts go with the thread: there is nothing to unmount, also
// if this process is killed.
func assemble(ctx context.Context, steps []abi.Mount, parts int, root string) error {
	tree := -1
	err := proc.OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		// What is mounted in this namespace is not mounted in others. What is unmounted on the host is unmounted here.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("make the mounts slaves of the host's: %w", err)
		}
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0700"); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", root, err)
		}
		if err := unix.Chdir(root); err != nil { // paths of the parts are relative
			return &os.PathError{Op: "chdir", Path: root, Err: err}
		}
		whole := filepath.Join(root, "root")
		if err := os.Mkdir(whole, 0o700); err != nil {
			return err
		}
		for i := range steps {
			m, at := &steps[i], whole
			if i < parts {
				at = filepath.Join(root, strconv.Itoa(i))
				if err := os.Mkdir(at, 0o700); err != nil {
					return err
				}
			}
			if err := m.Prepare(root); err != nil {
				return err
			}
			if err := mountOne(ctx, m, at); err != nil {
				return err
			}
		}
		tree, err = unix.OpenTree(unix.AT_FDCWD, whole, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, root, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the root to %s: %w", root, err)
	}
	return nil
}

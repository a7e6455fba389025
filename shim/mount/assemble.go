package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// All makes the mounts of a root file system in order. After an error nothing is mounted. Symbolic links do not lead
// out of root.
func All(ctx context.Context, mounts []*types.Mount, root string) error {
	place := func(part int) string { return filepath.Join(root, strconv.Itoa(part)) }
	steps, parts, err := Steps(mounts, place)
	if err != nil {
		return err
	}
	if parts > 0 {
		return assemble(ctx, steps, parts, root, place)
	}
	for i, s := range steps {
		if err := s.mount(ctx, root); err != nil {
			// Unmount the failed one, too: a bind mount may exist although changing its flags has failed.
			return errors.Join(err, Unmount(mounts[:i+1], root))
		}
	}
	return nil
}

func (s Step) mount(ctx context.Context, root string) error {
	err := context.Cause(ctx)
	if err == nil {
		err = Mount(s.Mount, root)
	}
	if err != nil {
		return fmt.Errorf("mount %s of type %s: %w", s.Source, s.Type, err)
	}
	return nil
}

// assemble mounts parts and what is made of them in a mount namespace that only one thread has, and the result on
// root. An overlay keeps its layers, so the parts go with the thread: there is nothing to unmount, also
// if this process is killed.
func assemble(ctx context.Context, steps []Step, parts int, root string, place func(int) string) error {
	tree := -1
	err := proc.OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		unix.Umask(0) // of this thread
		// Nobody else sees the mounts of this namespace. It does not keep those that others unmount.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("make the mounts slaves of the host's: %w", err)
		}
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0700"); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", root, err)
		}
		whole := filepath.Join(root, "root")
		if err := os.Mkdir(whole, 0o700); err != nil {
			return err
		}
		for i, s := range steps {
			at := whole
			if i < parts {
				at = place(i)
				if err := os.Mkdir(at, 0o700); err != nil {
					return err
				}
			}
			if err := s.prepare(min(i, parts), place); err != nil {
				return fmt.Errorf("mount %s of type %s: %w", s.Source, s.Type, err)
			}
			if err := s.mount(ctx, at); err != nil {
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

// prepare makes the directories of a step, and makes sure that its paths in parts lead nowhere else: a
// container may have written the part.
func (s Step) prepare(parts int, place func(int) string) error {
	for _, d := range s.Dirs {
		n, below, _ := within(d.Path, parts, place)
		dir, err := openBelow(place(n), filepath.Dir(below))
		if err != nil {
			return err
		}
		err = unix.Mkdirat(dir, filepath.Base(below), uint32(d.Mode))
		unix.Close(dir)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the directory %s: %w", d.Path, err)
		}
	}
	for _, path := range s.paths() {
		if n, below, ok := within(path, parts, place); ok {
			fd, err := openBelow(place(n), below)
			if err != nil {
				return err
			}
			unix.Close(fd)
		}
	}
	return nil
}

// paths returns the paths that the kernel resolves for a step.
func (s Step) paths() []string {
	all := []string{s.Source}
	for _, o := range s.Options {
		for _, name := range []string{lowerdir, "upperdir=", "workdir="} {
			if value, found := strings.CutPrefix(o, name); found {
				all = append(all, strings.Split(value, ":")...)
			}
		}
	}
	return all
}

// openBelow opens what a path leads to in a part. Links and dots do not lead out of it.
func openBelow(part, path string) (int, error) {
	dir, err := unix.Open(part, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: part, Err: err}
	}
	defer unix.Close(dir)
	if path == "" {
		path = "."
	}
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("%s of part %s: %w", path, filepath.Base(part), err)
	}
	return fd, nil
}

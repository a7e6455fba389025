package rktabi

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/mount"
)

// overlayDir is the directory below a pod directory in which rkt keeps the changes to a
// writable tree.
const overlayDir = "overlay"

// makeVisible makes the image visible in a pod directory: read-only in stage1.ImageDir, and in stage1.RootfsDir as a
// writable tree, as rkt did. The caller has entered the pod's mount namespace.
//
// Programs in the pod can write to the tree, so a tree that was used is mounted again as it is: stage 0 uses nothing in
// it, and only gc gets to see it.
func (s *adapter) makeVisible(dir string) error {
	if err := s.showImage(dir); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, image.IDFile)); err == nil {
		if err := s.overlay(dir); err == nil {
			return nil
		}
		return bindTree(dir)
	}
	if err := s.attachWritable(dir); err != nil || !s.hasSystemd() {
		return err
	}
	return s.accommodate(dir)
}

// showImage mounts the image read-only. Its entrypoints are executed there.
func (s *adapter) showImage(dir string) error {
	if err := proc.MakeDirs(dir, stage1.ImageDir); err != nil {
		return err
	}
	return mount.ReadOnly(s.Rootfs(), filepath.Join(dir, stage1.ImageDir))
}

// guardTree prevents stage 0 and the entrypoints that it executes from executing a file of the writable tree, and from
// following a link there: an app may have written both. The pod has other mounts of the tree.
func (s *adapter) guardTree(dir string) error {
	// A pod that an earlier release has made has no mount of the image.
	if same, err := sameFile(s.Rootfs(), filepath.Join(dir, stage1.ImageDir)); err != nil || !same {
		if err := s.showImage(dir); err != nil {
			return err
		}
	}
	tree := filepath.Join(dir, stage1.RootfsDir)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSYMFOLLOW | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, tree, unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW, &attr); err != nil {
		return fmt.Errorf("let nothing of %s be executed or followed: %w", tree, err)
	}
	return nil
}

// attachWritable makes a tree that no program has written to, by an overlay, or by a copy if there is no overlay. rkt/
// and opt/stage2/ are directories of the pod directory, so they are also visible outside of the pod's mount namespace.
func (s *adapter) attachWritable(dir string) error {
	tree := s.Rootfs()
	for _, d := range []string{stage1.RktDir, stage1.Stage2Dir} {
		rel, err := filepath.Rel(stage1.RootfsDir, d)
		if err != nil {
			return err
		}
		if err := copyTree(filepath.Join(tree, rel), filepath.Join(dir, d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	changes := filepath.Join(overlayDir, s.Digest())
	// Make the mount points of the pod's directories, because the image may lack them.
	if err := proc.MakeDirs(dir, stage1.RktDir+"/status", stage1.RktDir+"/env", stage1.Stage2Dir,
		changes+"/upper/rkt", changes+"/upper/opt/stage2", changes+"/work"); err != nil {
		return err
	}
	if err := s.overlay(dir); err != nil {
		err = errors.Join(os.RemoveAll(filepath.Join(dir, overlayDir)), copyTree(tree, filepath.Join(dir, stage1.RootfsDir)), bindTree(dir))
		return errors.Join(err, s.PutIdentity(dir))
	}
	return s.PutIdentity(dir)
}

// bindTree makes a mount of a tree that is a copy, as an overlay is one.
func bindTree(dir string) error {
	rootfs := filepath.Join(dir, stage1.RootfsDir)
	if err := unix.Mount(rootfs, rootfs, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on itself: %w", rootfs, err)
	}
	return nil
}

// overlay mounts the tree, and mounts the pod directory's rkt/ and opt/stage2/ on it.
func (s *adapter) overlay(dir string) error {
	tree := s.Rootfs()
	own := [...]string{stage1.RktInTree, stage1.Stage2InTree}
	var fds [len(own)]int
	for n, d := range own {
		fd, err := mount.Open(filepath.Join(dir, stage1.RootfsDir, d))
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		fds[n] = fd
	}
	changes := filepath.Join(dir, overlayDir, s.Digest())
	upper, work := filepath.Join(changes, "upper"), filepath.Join(changes, "work")
	if strings.ContainsAny(tree+upper, ":,\\") {
		return fmt.Errorf("%s cannot be an option of a mount", tree)
	}
	rootfs := filepath.Join(dir, stage1.RootfsDir)
	if err := unix.Mount("overlay", rootfs, "overlay", 0, "lowerdir="+tree+",upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mount an overlay on %s: %w", rootfs, err)
	}
	for n, d := range own {
		if err := mountBelow(fds[n], rootfs, d); err != nil {
			return errors.Join(err, unix.Unmount(rootfs, unix.MNT_DETACH))
		}
	}
	return nil
}

// mountBelow attaches a mount at a path in a tree that has no links on the way.
func mountBelow(fd int, rootfs, path string) error {
	at, err := abi.OpenBelow(rootfs, path, unix.O_PATH)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := unix.MoveMount(fd, "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount on %s: %w", filepath.Join(rootfs, path), err)
	}
	return nil
}

// copyTree copies directories, files and links with their modes and owners. It does not
// change existing entries.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		return copyEntry(path, filepath.Join(to, rel), st)
	})
}

func copyEntry(from, to string, st fs.FileInfo) error {
	var err error
	switch {
	case st.IsDir():
		err = os.MkdirAll(to, st.Mode().Perm())
	case st.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case st.Mode().IsRegular():
		err = copyContent(from, to, st.Mode().Perm())
	default:
		return fmt.Errorf("copy %s: it is neither a file, a directory nor a link", from)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	var u unix.Stat_t
	if err := unix.Lstat(from, &u); err != nil {
		return err
	}
	if err := os.Lchown(to, int(u.Uid), int(u.Gid)); err != nil {
		return err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	return os.Chmod(to, st.Mode()) // chown and umask have removed bits
}

func copyContent(from, to string, mode fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

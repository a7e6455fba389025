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

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/mount"
)

// overlayDir is the directory below a pod directory in which rkt keeps the changes to a
// writable tree.
const overlayDir = "overlay"

// attachWritable makes an image visible in a pod directory as a writable tree, as rkt did:
// by an overlay, or by a copy if there is no overlay. rkt/ and opt/stage2/ are directories
// of the pod directory, so they are also visible outside of the pod's mount namespace,
// which the caller has entered.
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
	if err := proc.MakeDirs(dir, stage1.RktDir+"/status", stage1.RktDir+"/env", stage1.Stage2Dir); err != nil {
		return err
	}
	if err := s.PutIdentity(dir); err != nil {
		return err
	}
	if err := s.overlay(dir, tree); err != nil {
		return copyTree(tree, filepath.Join(dir, stage1.RootfsDir))
	}
	return nil
}

// overlay mounts the tree, and mounts the pod directory's rkt/ and opt/stage2/ on it.
func (s *adapter) overlay(dir, tree string) error {
	var own [2]int
	for n, d := range [...]string{stage1.RktDir, stage1.Stage2Dir} {
		fd, err := mount.Open(filepath.Join(dir, d))
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		own[n] = fd
	}
	changes := filepath.Join(overlayDir, s.Digest())
	upper, work := filepath.Join(dir, changes, "upper"), filepath.Join(dir, changes, "work")
	if strings.ContainsAny(tree+upper, ":,\\") {
		return fmt.Errorf("%s cannot be an option of a mount", tree)
	}
	// Make the mount points of the pod's directories, because the image may lack them.
	if err := proc.MakeDirs(dir, changes+"/upper/rkt", changes+"/upper/opt/stage2", changes+"/work"); err != nil {
		return err
	}
	rootfs := filepath.Join(dir, stage1.RootfsDir)
	if err := unix.Mount("overlay", rootfs, "overlay", 0, "lowerdir="+tree+",upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mount an overlay on %s: %w", rootfs, err)
	}
	for n, d := range [...]string{stage1.RktDir, stage1.Stage2Dir} {
		if err := unix.MoveMount(own[n], "", unix.AT_FDCWD, filepath.Join(dir, d), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return errors.Join(fmt.Errorf("mount on %s: %w", d, err), unix.Unmount(rootfs, unix.MNT_DETACH))
		}
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

// makeVisible makes the image visible in a pod directory. The caller has entered the pod's
// mount namespace.
func (s *adapter) makeVisible(dir string) error {
	if err := s.attachWritable(dir); err != nil || !s.hasSystemd() {
		return err
	}
	return s.accommodate(dir)
}

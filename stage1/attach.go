package stage1

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/mount"
	"golang.org/x/sys/unix"
)

// Files of the stage1 in a pod directory.
const (
	manifestFile = "stage1/manifest"
	RootfsDir    = "stage1/rootfs"
	ImageDir     = "stage1/image" // the image's tree, read-only, if programs in the pod can write to RootfsDir
	RktDir       = RootfsDir + "/" + RktInTree
	Stage2Dir    = RootfsDir + "/" + Stage2InTree
)

// StatusDir returns the directory in which a pod's exits are recorded. The path names the
// same directory before Attach, while the tree is mounted, and after Detach or a reboot,
// because Attach mounts the pod directory's own rkt/ on the tree's.
func StatusDir(podDir string) string { return filepath.Join(podDir, abi.StatusDir) }

// Attach makes the stage1's image visible in a pod directory: its manifest and digest, and
// below stage1/rootfs its tree. The tree is read-only, and the pod's own directories are
// mounted on rkt and, if the image needs it, on opt/stage2. The mounts do not propagate. If Attach fails, nothing
// stays mounted.
func (s *Stage1) Attach(dir string) error {
	if err := s.MakeVisible(dir); err != nil {
		return fmt.Errorf("attach stage1 %s to pod %s: %w", s.Image.Name(), filepath.Base(dir), err)
	}
	s.noteProbe(dir)
	return nil
}

// MakeVisible is Attach for a caller that names the stage1 and the pod in its error.
func (s *Stage1) MakeVisible(dir string) error {
	if err := proc.MakeDirs(dir, append(s.writable(), RktDir+"/status")...); err != nil {
		return err
	}
	if err := s.PutIdentity(dir); err != nil {
		return err
	}
	// Open the pod's directories before the tree is mounted over them.
	var writable [2]int
	for n, d := range s.writable() {
		fd, err := mount.Open(filepath.Join(dir, d))
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		writable[n] = fd
	}
	if err := mount.ReadOnly(s.Rootfs(), filepath.Join(dir, RootfsDir)); err != nil {
		return errors.Join(err, s.Detach(dir))
	}
	for n, d := range s.writable() {
		if err := mount.Move(writable[n], filepath.Join(dir, d)); err != nil {
			return errors.Join(err, s.Detach(dir))
		}
	}
	return nil
}

// writable returns the pod's own directories in the tree. Each is a mount, and the kernel copies all
// mounts of the host for each mount namespace.
func (s *Stage1) writable() []string {
	if s.NeedsStage2() {
		return []string{RktDir, Stage2Dir}
	}
	return []string{RktDir}
}

// PutIdentity writes the image's manifest and digest into a pod directory.
func (s *Stage1) PutIdentity(dir string) error {
	if err := put(filepath.Join(dir, manifestFile), s.Manifest()); err != nil {
		return err
	}
	return put(filepath.Join(dir, image.IDFile), []byte(s.Digest()+"\n"))
}

// The pod's own directories, as paths in its tree.
const (
	RktInTree    = "rkt"
	Stage2InTree = image.Stage2
)

// InTree calls f with the tree of a pod, so that stage 0 can write to it. The tree belongs
// to an image, and programs in the pods of rkt's images can write to it. So a link in it
// must never lead stage 0 to a file of the host.
func InTree(dir string, f func(tree *os.Root) error) error {
	tree, err := os.OpenRoot(filepath.Join(dir, RootfsDir))
	if err != nil {
		return err
	}
	return errors.Join(f(tree), tree.Close())
}

// WriteInTree writes a file in a pod's tree, in place of what is there. It makes a new file, because to open a fifo
// that a program in the pod has made would block.
func WriteInTree(tree *os.Root, name string, text []byte, mode os.FileMode) error {
	if err := tree.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := tree.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// put writes a file unless it has that content already. A needless write is slow: ext4
// writes a file to the disk when a truncated file is closed.
func put(path string, text []byte) error {
	if old, err := proc.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return os.WriteFile(path, text, 0o640)
}

// Detach unmounts Attach's mounts in one step, even if processes still use them, and closes the
// pod's journal and socket. It is idempotent, and returns nil if nothing is mounted or the directory is gone.
func (s *Stage1) Detach(dir string) error {
	_ = s.journal.Close() // each line was written at once
	s.door.keep("", nil)
	rootfs := filepath.Join(dir, RootfsDir)
	for {
		err := unix.Unmount(rootfs, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", rootfs, err)
		}
		// Look for another mount: if a process was killed after Attach and before its caller
		// recorded that, Attach was called again.
	}
}

// EntrypointIn returns the path of an entrypoint in a pod. It is in a tree that programs in the pod cannot write to.
func (s *Stage1) EntrypointIn(dir string, e abi.Entrypoint) string {
	return filepath.Join(dir, cmp.Or(s.ProgramDir, RootfsDir)) + s.Entrypoint(e)
}

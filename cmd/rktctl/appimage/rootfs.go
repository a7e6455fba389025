package appimage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/api/types"
	continuity "github.com/containerd/continuity/fs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// IDFile is the file in an app's directory with the name of the tree that the app has. It has
// rkt's name.
const IDFile = "treeStoreID"

// localDir is the directory of local pods in the data directory.
const localDir = "local"

// debugDir is the directory of debug apps in the data directory.
const debugDir = "debug"

// Names in an app's directory.
const (
	upperDir = "upper" // the files that the app has changed
	workDir  = "work"  // overlay's own
	copyDir  = "copy"  // instead of the two, if there can be no overlay
)

// Rootfs is the root file system of an app.
type Rootfs struct {
	// Mounts are the mounts of a CreateTaskRequest.
	Mounts []*types.Mount
	// Copied is empty, or says why the app has a copy of the tree instead of an overlay.
	Copied string
	dir    string
}

// Rootfs prepares the root file system of one app in the directory of a local pod's app
// (local/UUID/apps/NAME) or of a debug app (debug/UUID/ID). The image is not changed: the changes
// that the app makes stay in the directory. The image's tree is not collected while that directory
// has the file treeStoreID. If Rootfs fails, nothing remains.
func (i *Image) Rootfs(dir string) (_ *Rootfs, err error) {
	defer prefix(&err, "root file system in %s", dir)
	if !i.store.ofApp(dir) {
		return nil, invalid("it is not of an app: it has to be local/UUID/apps/NAME or debug/UUID/ID in the data directory")
	}
	r := &Rootfs{dir: dir}
	if !i.Plain() {
		if err := i.keepFor(dir); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Remove())
		}
	}()
	upper, work := filepath.Join(dir, upperDir), filepath.Join(dir, workDir)
	overlay := &types.Mount{Type: "overlay", Source: "overlay", Options: []string{
		"lowerdir=" + i.Root(), "upperdir=" + upper, "workdir=" + work,
	}}
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755), likeRoot(upper, i.Root())); err != nil {
		return nil, err
	}
	impossible := tryOverlay(overlay.Options)
	if impossible == nil {
		r.Mounts = []*types.Mount{overlay}
		return r, nil
	}
	if err := r.removeOverlay(); err != nil {
		return nil, err
	}
	to := filepath.Join(dir, copyDir)
	if err := continuity.CopyDir(to, i.Root()); err != nil {
		return nil, fmt.Errorf("copy the tree, because there can be no overlay (%w): %w", impossible, err)
	}
	r.Copied = impossible.Error()
	r.Mounts = []*types.Mount{{Type: "bind", Source: to, Options: []string{"rbind", "rw"}}}
	return r, nil
}

// keepFor names the image's tree in an app's directory. It is the first step, because the tree is
// locked only while the image is open.
func (i *Image) keepFor(dir string) error {
	id, err := os.OpenFile(filepath.Join(dir, IDFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	_, err = id.WriteString(i.tree.id() + "\n")
	now := time.Now()
	err = errors.Join(err, id.Close(), os.Chtimes(filepath.Join(i.tree.dir, recordFile), now, now))
	if err != nil {
		err = errors.Join(err, os.Remove(id.Name()))
	}
	return err
}

// likeRoot gives the upper directory of an overlay the owner and the mode of the lower one, because
// the app sees those of the upper one.
func likeRoot(upper, lower string) error {
	var st unix.Stat_t
	if err := unix.Stat(lower, &st); err != nil {
		return err
	}
	return errors.Join(os.Chown(upper, int(st.Uid), int(st.Gid)), unix.Chmod(upper, st.Mode&0o7777))
}

// Give lets the root of a user namespace, who has these ids on the host, reach the root file system
// and make mount points in its root directory. All other files of the image belong to nobody there.
func (r *Rootfs) Give(uid, gid int) error {
	root := filepath.Join(r.dir, upperDir)
	if r.Copied != "" {
		root = filepath.Join(r.dir, copyDir)
	}
	return errors.Join(os.Chown(root, uid, gid), os.Chown(r.dir, 0, gid), os.Chmod(r.dir, 0o710))
}

// Remove removes the files that Rootfs has made. Nothing may be mounted any more. The removal
// of the pod's directory does the same.
func (r *Rootfs) Remove() error {
	return errors.Join(r.removeOverlay(), proc.RemoveAll(filepath.Join(r.dir, copyDir)), os.RemoveAll(filepath.Join(r.dir, IDFile)))
}

func (r *Rootfs) removeOverlay() error {
	return errors.Join(proc.RemoveAll(filepath.Join(r.dir, upperDir)), proc.RemoveAll(filepath.Join(r.dir, workDir)))
}

// ofApp reports whether the collector looks for the file treeStoreID in a directory.
func (s *Store) ofApp(dir string) bool {
	rel, err := filepath.Rel(filepath.Dir(s.dir), dir)
	parts := strings.Split(rel, "/")
	switch {
	case err != nil:
		return false
	case len(parts) == 4 && parts[0] == localDir:
		return true
	}
	return len(parts) == 3 && parts[0] == debugDir
}

// tryOverlay makes an overlay with these options, mounts it nowhere, and removes it. It
// returns an error if there can be none: the data directory may itself be on an overlay, or
// on a file system of the network.
func tryOverlay(options []string) error {
	for _, o := range options {
		if strings.ContainsAny(o, ":,\\") {
			return errors.New("the path of the data directory has a colon, a comma or a backslash, which separate options of an overlay")
		}
	}
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return nil // the mount says whether it is possible
	}
	if err != nil {
		return fmt.Errorf("the kernel has no overlay: %w", err)
	}
	defer unix.Close(fd)
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		if err := unix.FsconfigSetString(fd, key, value); err != nil {
			return fmt.Errorf("an overlay with %s: %w", o, err)
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return fmt.Errorf("no overlay on the file system of %s: %w", strings.TrimPrefix(options[1], "upperdir="), err)
	}
	return nil
}

package supervisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// Shared is the directory of the share, relative to the pod's directory. On the host it has the empty
// places for mounts. The mounts are in the namespace of the share.
const Shared = "stage1/rootfs/rkt/kvm.share"

// Roots and Volumes are directories of the share. Each has a virtiofsd, because the machine keeps the files
// of roots longer in its memory than those that others may change.
const (
	Roots   = "roots"   // has the root of an app at its name
	Volumes = "volumes" // has a directory for each app, in which the other binds have numbers
)

// Share is the directory of the pod's files in the machine.
type Share struct {
	named     atomic.Uint64
	namespace *os.File // a mount namespace
}

// NewShare makes the share, with nothing in it.
//
// Its mounts are in a mount namespace of their own, whose root is the share. As mounts of the host's namespace
// they kept the host from removing a directory on which something had been mounted below a volume (EBUSY).
// When the share has been closed, or this process has ended, and the virtiofsds have, the kernel unmounts
// everything in it.
func NewShare() (*Share, error) {
	for _, dir := range []string{Shared, filepath.Join(Shared, Roots), filepath.Join(Shared, Volumes)} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	// In the machine, root of a user namespace passes through it to the root of an app.
	if err := os.Chmod(filepath.Join(Shared, Roots), 0o711); err != nil {
		return nil, err
	}
	s := &Share{}
	err := proc.OnThread(func() (err error) {
		s.namespace, err = newNamespace(Shared)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the mount namespace of the share: %w", err)
	}
	return s, nil
}

// newNamespace moves this thread into a new mount namespace with a directory as its root, and without other
// mounts. The root is read-only: a machine that could rename or replace a directory there could have the
// host mount something elsewhere.
func newNamespace(dir string) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return nil, err
	}
	ns, err := proc.OpenFile("/proc/thread-self/ns/mnt", os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount(dir, dir, "", unix.MS_BIND, "") },
		func() error { return unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		func() error { return unix.Chdir(dir) },
		func() error { return unix.PivotRoot(".", ".") },
		func() error { return unix.Unmount(".", unix.MNT_DETACH) },
		// The copies of Tree get what is mounted below it later.
		func() error { return unix.Mount("", "/", "", unix.MS_SHARED, "") },
	} {
		if err := step(); err != nil {
			ns.Close()
			return nil, err
		}
	}
	return ns, nil
}

// Close gives up the namespace. No method may be called after that.
func (s *Share) Close() { _ = s.namespace.Close() }

// within calls f on a thread in the namespace of the share. self is the directory of that thread in the
// host's /proc: the namespace has none.
func (s *Share) within(f func(self *os.File) error) error {
	return proc.OnThread(func() error {
		self, err := proc.OpenFile("/proc/thread-self", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer self.Close()
		// A thread that has its root and its working directory in common with others cannot change
		// its mount namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := proc.Control(s.namespace, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNS) }); err != nil {
			return fmt.Errorf("enter the mount namespace of the share: %w", err)
		}
		return f(self)
	})
}

// Tree returns a detached mount of a directory of the share. When it has been attached in another namespace,
// it gets what is mounted below that directory later.
func (s *Share) Tree(dir string) (*os.File, error) { return s.open("/"+dir, 0) }

// open returns a copy of the mount at a path of the share.
func (s *Share) open(path string, flags uint) (tree *os.File, err error) {
	err = s.within(func(*os.File) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
		if err != nil {
			return &os.PathError{Op: "copy the mount of", Path: path, Err: err}
		}
		tree = os.NewFile(uintptr(fd), path)
		return nil
	})
	return tree, err
}

// Bind is a file or directory of the host for an app.
type Bind struct {
	File *os.File // O_PATH
	Dir  bool
	// Recursive includes the mounts below.
	Recursive bool
	// readOnly binds are read-only on the host as well, with the mounts below: what the machine mounts read-only for
	// an app is writable for its kernel.
	readOnly bool
	ids      *idMap // or nil
}

// Files is an app's part of the share.
type Files struct {
	share *Share
	dir   string   // in Roots and in Volumes
	names []string // of the places that were made, in order
}

// Name returns the name of a directory for an app that is added. No directory gets a name twice: for a
// second the guest believes what it knows of a name in Roots, without asking virtiofsd. An app that was added
// again, after a failure or its removal, had the files of the one before, or the place for its root
// without the root.
func (s *Share) Name(app string) string { return fmt.Sprintf("%s-%d", app, s.named.Add(1)) }

// Add shares an app's root, the first bind, and its other binds, in a directory that Name has named. A
// bind without a file is left out.
func (s *Share) Add(dir string, binds []Bind) (f *Files, err error) {
	f = &Files{share: s, dir: dir}
	defer func() {
		if err != nil {
			f.Remove()
		}
	}()
	if err := os.Mkdir(filepath.Join(Shared, Volumes, dir), 0o700); err != nil {
		return f, err
	}
	for i, b := range binds {
		if b.File == nil {
			continue
		}
		if err := f.bind(placeOf(dir, i), b); err != nil {
			return f, err
		}
	}
	return f, nil
}

// placeOf returns the place of a bind of the app with a directory, relative to the share.
func placeOf(dir string, bind int) string {
	if bind == 0 {
		return filepath.Join(Roots, dir)
	}
	return filepath.Join(Volumes, dir, strconv.Itoa(bind))
}

// inGuest returns the path in the machine of a bind of the app with a directory.
func inGuest(dir string, bind int) string {
	if bind == 0 {
		return filepath.Join(channel.GuestRoots, dir)
	}
	return filepath.Join(channel.GuestShare, dir, strconv.Itoa(bind))
}

func (f *Files) bind(name string, b Bind) error {
	place := filepath.Join(Shared, name)
	var err error
	if b.Dir {
		err = os.Mkdir(place, 0o700)
	} else {
		err = os.WriteFile(place, nil, 0o600)
	}
	if err != nil {
		return err
	}
	f.names = append(f.names, name)
	tree, err := b.copy()
	if err != nil {
		return fmt.Errorf("bind %s: %w", b.File.Name(), err)
	}
	defer tree.Close()
	return f.share.within(func(self *os.File) error {
		at := "/" + name
		err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
		if err == unix.ELOOP { // of an older mount namespace; noKernel finds the others
			return serve.Unsupported("%s has the file of a mount namespace below it, which cannot be shared with a machine", b.File.Name())
		}
		if err != nil {
			return fmt.Errorf("bind %s: %w", b.File.Name(), err)
		}
		if !b.Recursive {
			return nil
		}
		// Look at what was mounted, not at what may be mounted there later.
		return noKernel(self, at, b.File.Name())
	})
}

// copy returns a detached mount of the bind. Its mounts are slaves of the host's: what the host mounts or unmounts
// below shared ones later changes the copy, and the end of the copy unmounts nothing of the host's.
func (b *Bind) copy() (*os.File, error) {
	flags := uint(unix.AT_EMPTY_PATH)
	if b.Recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(int(b.File.Fd()), "", flags|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, err
	}
	tree := os.NewFile(uintptr(fd), b.File.Name())
	attr := unix.MountAttr{Propagation: unix.MS_SLAVE}
	if b.readOnly {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", flags, &attr); err != nil {
		tree.Close()
		return nil, err
	}
	if b.ids != nil {
		if err := b.ids.apply(tree); err != nil {
			tree.Close()
			return nil, err
		}
	}
	return tree, nil
}

// noKernel returns an error if a file system of the host's kernel is mounted below a place in the mount
// namespace of this thread, whose directory in the host's /proc is self.
func noKernel(self *os.File, place, source string) error {
	fd, err := unix.Openat(int(self.Fd()), "mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "mountinfo")
	defer file.Close()
	mounts, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		fields, kind, _ := strings.Cut(line, " - ")
		words := strings.Fields(fields)
		kind, _, _ = strings.Cut(kind, " ")
		if len(words) > 4 && strings.HasPrefix(words[4], place+"/") && slices.Contains(kernelTypes, kind) {
			return serve.Unsupported("%s has a mount of type %s below it, which cannot be shared with a machine", source, kind)
		}
	}
	return nil
}

// Root returns the path of the app's root in the machine.
func (f *Files) Root() string { return inGuest(f.dir, 0) }

// OpenRoot returns a detached mount of the app's root, with the mounts below it, all of them private.
func (f *Files) OpenRoot() (*os.File, error) {
	tree, err := f.share.open("/"+placeOf(f.dir, 0), unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		tree.Close()
		return nil, err
	}
	return tree, nil
}

// Remove ends the sharing. It removes the empty places, which have mounts in other namespaces only. The kernel
// unmounts these mounts with their places.
func (f *Files) Remove() {
	if f == nil {
		return
	}
	for _, name := range f.names {
		_ = os.Remove(filepath.Join(Shared, name))
	}
	_ = os.Remove(filepath.Join(Shared, Volumes, f.dir))
}

func closeBinds(binds []Bind) {
	for _, b := range binds {
		b.File.Close()
	}
}

package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// Paths of the share, relative to the pod's directory. The machine gets Shared, which is
// read-only but for what is mounted below it: a machine that could rename or replace a
// directory there could have the host mount something elsewhere. The host makes the places
// for mounts in the same directory by its other path.
const (
	writable = "stage1/rootfs/rkt/kvm.share"
	// Shared is the directory that virtiofsd shares. What is mounted below it later is visible
	// in namespaces whose mounts are slaves.
	Shared = "stage1/rootfs/rkt/shared"
	// Roots and Volumes are directories of both. Each has a virtiofsd, because the machine keeps the files
	// of roots longer in its memory than those that others may change.
	Roots   = "roots"   // has the root of an app at its name
	Volumes = "volumes" // has a directory for each app, in which the other binds have numbers
)

// Share is the directory of the pod's files in the machine.
type Share struct{ named atomic.Uint64 }

// NewShare makes the share, with nothing in it. Stage 0 unmounts it, and what is mounted below
// it, before it removes the pod.
func NewShare() (*Share, error) {
	for _, dir := range []string{writable, filepath.Join(writable, Roots), filepath.Join(writable, Volumes), Shared} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	// Private first: as a peer of the mount that it copies, it would show its mounts at both
	// paths.
	err := unix.Mount(writable, Shared, "", unix.MS_BIND, "")
	for _, flags := range []uintptr{unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY, unix.MS_PRIVATE, unix.MS_SHARED} {
		if err == nil {
			err = unix.Mount("", Shared, "", flags, "")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("mount the share of the pod: %w", err)
	}
	return &Share{}, nil
}

// Bind is a file or directory of the host for an app.
type Bind struct {
	File *os.File // O_PATH
	Dir  bool
	// Recursive includes the mounts below.
	Recursive bool
}

// Files is an app's part of the share.
type Files struct {
	dir   string   // in Roots and in Volumes
	names []string // of the places that were made, in order
}

// Name returns the name of a directory for an app that is added. No directory gets a name twice: for a
// second the guest believes what it knows of a name, without asking virtiofsd. An app that was added
// again, after a failure or its removal, had the files of the one before, or the place for its root
// without the root.
func (s *Share) Name(app string) string { return fmt.Sprintf("%s-%d", app, s.named.Add(1)) }

// Add shares an app's root, the first bind, and its other binds, in a directory that Name has named. A
// bind without a file is left out.
func (s *Share) Add(dir string, binds []Bind) (f *Files, err error) {
	f = &Files{dir: dir}
	defer func() {
		if err != nil {
			f.Remove()
		}
	}()
	if err := os.Mkdir(filepath.Join(writable, Volumes, dir), 0o700); err != nil {
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
	place := filepath.Join(writable, name)
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
	flags := uintptr(unix.MS_BIND)
	if b.Recursive {
		flags |= unix.MS_REC
	}
	source := fmt.Sprintf("/proc/self/fd/%d", b.File.Fd())
	if err := unix.Mount(source, filepath.Join(Shared, name), "", flags, ""); err != nil {
		return fmt.Errorf("bind %s: %w", b.File.Name(), err)
	}
	if !b.Recursive {
		return nil
	}
	// Look at what was mounted, not at what may be mounted there later.
	return f.noKernel(filepath.Join(Shared, name), b.File.Name())
}

// noKernel returns an error if a file system of the host's kernel is mounted below a place.
func (f *Files) noKernel(place, source string) error {
	place, err := filepath.Abs(place)
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
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

// HostRoot returns the path of the app's root on the host.
func (f *Files) HostRoot() string { return filepath.Join(Shared, placeOf(f.dir, 0)) }

// Remove ends the sharing. It removes no file of a bind: a place that is still mounted stays.
func (f *Files) Remove() {
	if f == nil {
		return
	}
	for _, name := range f.names {
		_ = unix.Unmount(filepath.Join(Shared, name), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		_ = os.Remove(filepath.Join(writable, name))
	}
	_ = os.Remove(filepath.Join(writable, Volumes, f.dir))
}

func closeBinds(binds []Bind) {
	for _, b := range binds {
		b.File.Close()
	}
}

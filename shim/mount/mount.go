package mount

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// Mount mounts m at its target below root. Symbolic links do not lead out of root.
func Mount(ctx context.Context, m *types.Mount, root string) error {
	target, err := securejoin.SecureJoin(root, m.Target)
	if err != nil {
		return err
	}
	if helper, kind, ok := helperOf(m.Type); ok {
		return mountByHelper(ctx, helper, kind, m, target)
	}
	o, err := parse(m.Options)
	if err != nil {
		return err
	}
	if o.uidmap == "" || o.gidmap == "" {
		return o.mount(m.Type, m.Source, target)
	}
	user, err := userNamespace(o.uidmap, o.gidmap)
	if err != nil {
		return err
	}
	defer user.Close()
	if m.Type == overlay {
		return o.mountMappedOverlay(m.Source, target, user)
	}
	if err := o.mount(m.Type, m.Source, target); err != nil {
		return err
	}
	return mapIDs(target, target, user, 0)
}

// Unmount undoes mounts that were made below root, in reverse order. It goes on after an error,
// and returns the first one.
func Unmount(mounts []*types.Mount, root string) (first error) {
	for i := len(mounts) - 1; i >= 0; i-- {
		target, err := securejoin.SecureJoin(root, mounts[i].Target)
		if err == nil {
			err = unmountAll(target)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// blob is an option of erofs: a file that has contents of the image.
const blob = "device="

// mount makes a mount without regard to uidmap and gidmap.
func (o options) mount(kind, source, target string) error {
	dir := "" // in which mount(2) is called
	switch kind {
	case overlay:
		dir, o.data = shorten(o.data)
	case "ext2", "ext3", "ext4":
		if o.flags&(unix.MS_REMOUNT|unix.MS_BIND) == 0 && panics(source) {
			o.data = slices.Insert(slices.Clone(o.data), 0, "errors=remount-ro")
		}
	}
	data := strings.Join(o.data, ",")
	// A remount without data only changes flags, below.
	if o.flags&unix.MS_REMOUNT == 0 || data != "" {
		if o.loop {
			files := []*string{&source}
			for i := range o.data {
				if strings.HasPrefix(o.data[i], blob) {
					files = append(files, &o.data[i])
				}
			}
			for _, f := range files {
				path, isBlob := strings.CutPrefix(*f, blob)
				device, err := attach(path, o.flags&unix.MS_RDONLY != 0, o.direct)
				if err != nil {
					return err
				}
				defer device.Close()
				*f = device.Name()
				if isBlob {
					*f = blob + *f
				}
			}
			data = strings.Join(o.data, ",")
		}
		if len(data) >= os.Getpagesize() {
			return fmt.Errorf("the options have %d bytes, and a page has %d: %w", len(data), os.Getpagesize(), unix.E2BIG)
		}
		if err := mountIn(dir, source, target, kind, o.flags, data); err != nil {
			return err
		}
	}
	// The kernel ignores MS_RDONLY when it makes a bind mount.
	if o.flags&unix.MS_BIND == 0 || o.flags&unix.MS_RDONLY == 0 {
		return nil
	}
	locked, err := lockedFlags(target)
	if err == nil {
		err = unix.Mount("", target, "", o.flags|locked|unix.MS_REMOUNT, "")
	}
	if err != nil {
		return fmt.Errorf("make the bind mount read-only: %w", err)
	}
	return nil
}

// panics reports whether a disk with a file system of the ext family asks for a panic of the kernel when the file system is damaged, as far
// as it can be read. A container may have written the disk.
func panics(disk string) bool {
	const at, wish = 1024 + 0x3c, 3 // s_errors of the superblock
	f, err := os.OpenFile(disk, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var asked [2]byte
	_, err = f.ReadAt(asked[:], at)
	return err == nil && binary.LittleEndian.Uint16(asked[:]) == wish
}

// lockedFlags returns the flags of a mount that a process in a user namespace may not clear.
func lockedFlags(target string) (uintptr, error) {
	if !userns.RunningInUserNS() {
		return 0, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return 0, err
	}
	// The numbers of these flags are those of statfs(2), too.
	return uintptr(st.Flags) & (unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_NOATIME | unix.MS_NODIRATIME), nil
}

// options are the options of a mount.
type options struct {
	flags          uintptr
	data           []string // for the file system
	loop, direct   bool
	uidmap, gidmap string
}

// flags has the options of mount(8) that are flags of mount(2).
var flags = [...]struct {
	name  string
	clear bool
	flag  uintptr
}{
	{"async", true, unix.MS_SYNCHRONOUS},
	{"atime", true, unix.MS_NOATIME},
	{"bind", false, unix.MS_BIND},
	{"dev", true, unix.MS_NODEV},
	{"diratime", true, unix.MS_NODIRATIME},
	{"dirsync", false, unix.MS_DIRSYNC},
	{"exec", true, unix.MS_NOEXEC},
	{"mand", false, unix.MS_MANDLOCK},
	{"noatime", false, unix.MS_NOATIME},
	{"nodev", false, unix.MS_NODEV},
	{"nodiratime", false, unix.MS_NODIRATIME},
	{"noexec", false, unix.MS_NOEXEC},
	{"nomand", true, unix.MS_MANDLOCK},
	{"norelatime", true, unix.MS_RELATIME},
	{"nostrictatime", true, unix.MS_STRICTATIME},
	{"nosuid", false, unix.MS_NOSUID},
	{"rbind", false, unix.MS_BIND | unix.MS_REC},
	{"relatime", false, unix.MS_RELATIME},
	{"remount", false, unix.MS_REMOUNT},
	{"ro", false, unix.MS_RDONLY},
	{"rw", true, unix.MS_RDONLY},
	{"strictatime", false, unix.MS_STRICTATIME},
	{"suid", true, unix.MS_NOSUID},
	{"sync", false, unix.MS_SYNCHRONOUS},
}

// managers is the prefix of options that containerd's mount manager carries out and removes.
const managers = "X-containerd."

func parse(all []string) (o options, err error) {
	for _, option := range all {
		if strings.HasPrefix(option, managers) {
			return o, fmt.Errorf("containerd's mount manager has to carry out the option %q", option)
		}
		o.set(option)
	}
	if o.loop {
		var rest []string
		for _, option := range o.data {
			if option == "direct-io" {
				o.direct = true
			} else {
				rest = append(rest, option)
			}
		}
		o.data = rest
	}
	return o, nil
}

func (o *options) set(option string) {
	for _, f := range flags {
		switch {
		case f.name != option:
		case f.clear:
			o.flags &^= f.flag
			return
		default:
			o.flags |= f.flag
			return
		}
	}
	name, value, _ := strings.Cut(option, "=")
	switch {
	case option == "loop":
		o.loop = true
	case name == "uidmap" && option != name:
		o.uidmap = value
	case name == "gidmap" && option != name:
		o.gidmap = value
	default:
		o.data = append(o.data, option)
	}
}

// unmountAll unmounts everything that is mounted at target itself. It is no error if nothing is.
func unmountAll(target string) error {
	for {
		err := unmount(target)
		if err == unix.EINVAL || err == unix.ENOENT { // nothing is mounted there
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", filepath.Clean(target), err)
		}
	}
}

package immutable

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	securejoin "github.com/cyphar/filepath-securejoin"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/appc"
)

// MountVolumes mounts an app's volumes in its root before app/add. rkt's stage1s would
// mount them through a directory of systemd-nspawn that later versions have moved.
// MountVolumes leaves out the mounts that the stage1 makes for every app.
func (s *InSpace) MountVolumes(k *Composition, bundle string) error {
	for i, m := range k.Spec.Mounts {
		if !k.mounts(m) {
			continue
		}
		if bind, _ := appc.Bind(m); !bind && m.Type != "tmpfs" {
			if !s.MayIgnore("/mounts/*/type") {
				return s.Refused(fmt.Sprintf("config.json asks for /mounts/%d/type: %s on %s is neither a part of the host nor a tmpfs", i, m.Type, m.Destination), errdefs.ErrNotImplemented)
			}
			continue
		}
		v, err := s.newVolume(m, bundle)
		if err == nil {
			err = s.mountVolume(v, k.Root(), m.Destination)
		}
		if err != nil {
			return s.Refused(fmt.Sprintf("/mounts/%d: %v", i, err), err)
		}
	}
	return nil
}

// volume is a mount that is not attached yet.
type volume struct {
	tree *os.File // a detached mount
	dir  bool
}

// newVolume makes the mount of a spec: a part of the host, or a tmpfs. It refuses options that
// the mount cannot have, unless they are excused.
func (s *InSpace) newVolume(m specs.Mount, bundle string) (*volume, error) {
	if bind, recursive := appc.Bind(m); bind {
		return s.newBind(m, bundle, recursive)
	}
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a tmpfs: %w", err)
	}
	defer unix.Close(fs)
	var attr uint64
	for _, o := range m.Options {
		key, value, given := strings.Cut(o, "=")
		switch set, known := mountAttribute(o); {
		case known:
			attr |= set
		case given:
			err = unix.FsconfigSetString(fs, key, value)
		default:
			err = s.mayDrop(o)
		}
		if err != nil {
			return nil, fmt.Errorf("option %s: %w", o, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make a tmpfs: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(attr))
	if err != nil {
		return nil, fmt.Errorf("make a tmpfs: %w", err)
	}
	return &volume{tree: os.NewFile(uintptr(fd), "tmpfs"), dir: true}, nil
}

func (s *InSpace) newBind(m specs.Mount, bundle string, recursive bool) (*volume, error) {
	source := m.Source
	if !filepath.IsAbs(source) {
		source = filepath.Join(bundle, source)
	}
	st, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	var attr unix.MountAttr
	for _, o := range m.Options {
		set, known := mountAttribute(o)
		attr.Attr_set |= set
		if !known {
			if err := s.mayDrop(o); err != nil {
				return nil, err
			}
		}
	}
	var mounts proc.MountCopier
	tree, err := mounts.Copy(source, recursive)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", source, err)
	}
	if attr.Attr_set != 0 { // applies to the uppermost mount only, as in runc
		if err := unix.MountSetattr(int(tree.Fd()), "", unix.AT_EMPTY_PATH, &attr); err != nil {
			tree.Close()
			return nil, fmt.Errorf("options of %s: %w", source, err)
		}
	}
	return &volume{tree: tree, dir: st.IsDir()}, nil
}

// mountAttribute returns the attribute that an option of a mount sets. Options that ask for
// private propagation set none, because every mount here is private.
func mountAttribute(option string) (set uint64, known bool) {
	switch option {
	case "bind", "rbind", "rw", "suid", "dev", "exec", "relatime", "private", "rprivate":
		return 0, true
	}
	set, known = map[string]uint64{
		"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
		"noexec": unix.MOUNT_ATTR_NOEXEC, "noatime": unix.MOUNT_ATTR_NOATIME, "strictatime": unix.MOUNT_ATTR_STRICTATIME,
	}[option]
	return set, known
}

// mayDrop returns an error for an unsupported option, unless the option is excused.
func (s *InSpace) mayDrop(option string) error {
	if s.MayIgnore("/mounts/*/options") {
		return nil
	}
	return fmt.Errorf("the option %s cannot be had", option)
}

// mountVolume attaches a mount below an app's root, in the pod's space. Links cannot lead
// out of the root.
func (s *InSpace) mountVolume(v *volume, root, destination string) error {
	defer v.tree.Close()
	return s.Within(func() error {
		in, err := os.OpenRoot(root)
		if err != nil {
			return err
		}
		defer in.Close()
		target, err := placeIn(in, destination, v.dir)
		if err != nil {
			return err
		}
		return MountIn(in, int(v.tree.Fd()), target)
	})
}

// placeIn returns the mount point for a path in a root, and makes it if it is missing. It
// follows links inside the root, and the returned path has none. If another app of the pod
// replaces a part of the path by a link meanwhile, os.Root does not let the link lead out
// of the root.
func placeIn(root *os.Root, path string, dir bool) (string, error) {
	full, err := securejoin.SecureJoin(root.Name(), path)
	if err != nil {
		return "", err
	}
	target, err := filepath.Rel(root.Name(), full)
	if err != nil {
		return "", err
	}
	if _, err := root.Lstat(target); err == nil {
		return target, nil
	}
	if dir {
		return target, root.MkdirAll(target, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", err
	}
	f, err := root.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	return target, f.Close()
}

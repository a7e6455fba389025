package immutable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/appc"
)

// Composition is an app in the form in which a stage1 that reads manifests gets it: as
// files and mounts in the pod directory.
type Composition struct {
	Dir  string // of the pod
	Name types.ACName
	App  *appc.App
	Spec *specs.Spec
	// Annotations are the annotations of the app, which describe its streams.
	Annotations types.Annotations
	mutable     bool // the pod's manifest is in use already, so it gets no volumes
}

// Compose makes the Composition of the app that an app/add asks for.
func (s *InSpace) Compose(c pod.Call, mutable bool) (*Composition, error) {
	k := &Composition{Dir: c.Dir, Name: types.ACName(c.Request.App), Spec: SpecOf(&c), mutable: mutable}
	var err error
	k.App, err = appc.Translate(k.Spec, appc.Options{
		Name: c.Request.App, Bundle: c.Request.Bundle, Excused: s.MayIgnore, Mounted: k.mounts,
	})
	return k, err
}

// SpecOf returns the spec of the app that `run` executes. The spec is empty for a mutable
// pod, because such a pod has no app when `run` is called.
func SpecOf(c *pod.Call) *specs.Spec {
	if c.Spec == nil {
		return &specs.Spec{}
	}
	return &c.Spec.OCI
}

// mounts reports whether stage 0 itself makes a mount in the app's root, so that the
// manifest has no volume for it. In a mutable pod stage 0 makes all mounts that the stage1
// does not make. In an immutable pod it makes mounts of tmpfs, because a volume of kind
// empty has no size and no flags, and rkt's fly makes no tmpfs. The stage1 makes a tmpfs
// inside a volume, because volumes are mounted after stage 0's mounts.
func (k *Composition) mounts(m specs.Mount) bool {
	if appc.Own(m) || k.mutable {
		return !appc.Own(m)
	}
	inVolume := slices.ContainsFunc(k.Spec.Mounts, func(v specs.Mount) bool {
		bind, _ := appc.Bind(v)
		return bind && strings.HasPrefix(filepath.Clean(m.Destination), filepath.Clean(v.Destination)+"/")
	})
	bind, _ := appc.Bind(m)
	return m.Type == "tmpfs" && !bind && !inVolume
}

// Stage2 returns the directory of the app in the pod's tree.
func (k *Composition) Stage2() string { return filepath.Join(stage1.Stage2InTree, string(k.Name)) }

// rootInTree returns the mount point of the app's root in the pod's tree.
func (k *Composition) rootInTree() string { return filepath.Join(k.Stage2(), "rootfs") }

// Root returns the mount point of the app's root.
func (k *Composition) Root() string { return filepath.Join(k.Dir, stage1.RootfsDir, k.rootInTree()) }

// Write writes the files that rkt wrote before it called the stage1: the image manifest
// twice, the environment, the entry in the pod's manifest, and an empty file whose time is
// the time of this step.
func (k *Composition) Write() error {
	image, app, err := disk.Describe(disk.AppName(k.Name), &k.App.App)
	if err != nil {
		return err
	}
	if err := k.writeInTree(image); err != nil {
		return err
	}
	info := filepath.Join(k.Dir, "appsinfo", string(k.Name))
	if err := os.MkdirAll(info, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(info, "manifest"), image, 0o644); err != nil {
		return err
	}
	if err := k.enlist(app); err != nil {
		return fmt.Errorf("manifest of the pod: %w", err)
	}
	return stage1.InTree(k.Dir, func(tree *os.Root) error { return stage1.WriteInTree(tree, Mark(string(k.Name), Created), nil, 0o644) })
}

// writeInTree writes the files that programs in the pod read.
func (k *Composition) writeInTree(image []byte) error {
	return stage1.InTree(k.Dir, func(tree *os.Root) error {
		if err := tree.MkdirAll(k.rootInTree(), 0o750); err != nil {
			return err
		}
		if err := tree.Chmod(k.Stage2(), 0o755); err != nil { // programs of any user read these files
			return err
		}
		if err := stage1.WriteInTree(tree, filepath.Join(k.Stage2(), "manifest"), image, 0o644); err != nil {
			return err
		}
		env := filepath.Join(stage1.RktInTree, "env")
		if err := tree.MkdirAll(env, 0o755); err != nil {
			return err
		}
		return stage1.WriteInTree(tree, filepath.Join(env, string(k.Name)), appc.Env(string(k.Name), &k.App.App), 0o644)
	})
}

// enlist replaces the app's entry in the pod's manifest.
func (k *Composition) enlist(app *schema.RuntimeApp) error {
	app.ReadOnlyRootFS, app.Mounts, app.Annotations = k.App.ReadOnly, k.App.Mounts, k.Annotations
	entry, err := json.Marshal(app)
	if err != nil {
		return err
	}
	return disk.EditManifest(k.Dir, func(m *disk.Manifest) error {
		m.Drop(k.replaces)
		m.Apps = append(m.Apps, entry)
		for _, v := range k.App.Volumes {
			volume, err := json.Marshal(v)
			if err != nil {
				return err
			}
			m.Volumes = append(m.Volumes, volume)
		}
		if k.mutable {
			return nil
		}
		return setAnnotation(m, "coreos.com/rkt/stage1/mutable", "false")
	})
}

func setAnnotation(m *disk.Manifest, name types.ACIdentifier, value string) error {
	var all types.Annotations
	if len(m.Annotations) > 0 {
		if err := json.Unmarshal(m.Annotations, &all); err != nil {
			return err
		}
	}
	all.Set(name, value)
	var err error
	m.Annotations, err = json.Marshal(all)
	return err
}

// replaces reports whether an entry of the pod's manifest is removed when this app's entry
// is written or removed. These are this app's own entry, and entries of apps without files,
// because every app/add would fail with such an entry. An app that is being added gets its
// entry again when its files are written.
func (k *Composition) replaces(name disk.AppName) bool {
	if string(name) == string(k.Name) {
		return true
	}
	f, err := abi.OpenBelow(k.Dir, filepath.Join(stage1.Stage2Dir, string(name), "manifest"), unix.O_PATH)
	if err != nil {
		return true
	}
	return f.Close() != nil
}

// Delist removes the app's entry from the pod's manifest. A half removed pod may have no
// manifest.
func (k *Composition) Delist() error {
	err := disk.EditManifest(k.Dir, func(m *disk.Manifest) error {
		m.Drop(k.replaces)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// MountRoot mounts an app's root, with all mounts below it, at the path in the pod's mount
// namespace where a stage1 of rkt looks for it.
func (s *InSpace) MountRoot(from string, k *Composition) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("open the root file system %s: %w", from, err)
	}
	defer unix.Close(fd)
	err = s.Within(func() error {
		return stage1.InTree(k.Dir, func(tree *os.Root) error { return MountIn(tree, fd, k.rootInTree()) })
	})
	if err != nil {
		return fmt.Errorf("mount the root file system: %w", err)
	}
	return nil
}

// MountIn attaches a mount at a path below a root. Links cannot lead out of the root.
func MountIn(root *os.Root, fd int, path string) error {
	to, err := root.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := unix.MoveMount(fd, "", int(to.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount on %s: %w", filepath.Join(root.Name(), path), err)
	}
	return nil
}

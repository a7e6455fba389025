package stage1

import (
	"crypto/sha512"
	"encoding/hex"
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

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/appc"
)

// Files of a pod directory that rkt's stage1s read.
const (
	podManifestFile = "pod"
	podLockFile     = "pod.lck"
)

// composition is what an app is made of on disk, for a stage1 that reads manifests.
type composition struct {
	dir  string // of the pod
	name types.ACName
	app  *appc.App
	spec *specs.Spec
	// annotations of the app: its streams.
	annotations types.Annotations
	mutable     bool // the pod's manifest gets no volumes: others use it already
}

// compose translates what an app/add asks for.
func (s *inSpace) compose(c pod.Call, mutable bool) (*composition, error) {
	k := &composition{dir: c.Dir, name: types.ACName(c.Request.App), spec: specOf(&c.Request), mutable: mutable}
	var err error
	k.app, err = appc.Translate(k.spec, appc.Options{
		Name: c.Request.App, Bundle: c.Request.Bundle, Excused: s.mayIgnore, Mounted: k.mounts,
	})
	return k, err
}

// specOf returns the spec of the app that `run` executes, or an empty one of a
// mutable pod, which has none yet.
func specOf(r *abi.Request) *specs.Spec {
	spec := &specs.Spec{}
	if len(r.Spec) > 0 {
		_ = json.Unmarshal(r.Spec, spec) // the pod has read it before
	}
	return spec
}

// mounts tells whether stage 0 makes a mount itself, in the app's root, and does not
// say it as a volume. An empty volume has neither the size nor the flags of a tmpfs,
// and rkt's fly does not have any. What is to be in a volume comes after that.
func (k *composition) mounts(m specs.Mount) bool {
	if appc.Own(m) || k.mutable {
		return !appc.Own(m)
	}
	inVolume := slices.ContainsFunc(k.spec.Mounts, func(v specs.Mount) bool {
		bind, _ := appc.Bind(v)
		return bind && strings.HasPrefix(filepath.Clean(m.Destination), filepath.Clean(v.Destination)+"/")
	})
	bind, _ := appc.Bind(m)
	return m.Type == "tmpfs" && !bind && !inVolume
}

// stage2 is where the app is in the pod's tree.
func (k *composition) stage2() string { return filepath.Join(stage2InTree, string(k.name)) }

// rootInTree is where the app's root is mounted in the pod's tree.
func (k *composition) rootInTree() string { return filepath.Join(k.stage2(), "rootfs") }

// root is where the app's root is mounted.
func (k *composition) root() string { return filepath.Join(k.dir, rootfsDir, k.rootInTree()) }

// write writes what rkt wrote before it called the stage1: the image manifest twice,
// the environment, the entry in the pod's manifest, and the time of all that.
func (k *composition) write() error {
	image, err := k.image()
	if err != nil {
		return err
	}
	if err := k.writeInTree(image); err != nil {
		return err
	}
	info := filepath.Join(k.dir, "appsinfo", string(k.name))
	if err := os.MkdirAll(info, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(info, "manifest"), image, 0o644); err != nil {
		return err
	}
	if err := k.enlist(image); err != nil {
		return fmt.Errorf("manifest of the pod: %w", err)
	}
	return inTree(k.dir, func(tree *os.Root) error { return tree.WriteFile(mark(string(k.name), created), nil, 0o644) })
}

// writeInTree writes what the programs in the pod read of the app.
func (k *composition) writeInTree(image []byte) error {
	return inTree(k.dir, func(tree *os.Root) error {
		if err := tree.MkdirAll(k.rootInTree(), 0o750); err != nil {
			return err
		}
		if err := tree.Chmod(k.stage2(), 0o755); err != nil { // programs of any user have to get through
			return err
		}
		if err := tree.WriteFile(filepath.Join(k.stage2(), "manifest"), image, 0o644); err != nil {
			return err
		}
		return tree.WriteFile(filepath.Join(rktInTree, "env", string(k.name)), appc.Env(string(k.name), &k.app.App), 0o644)
	})
}

func (k *composition) image() ([]byte, error) {
	m := schema.BlankImageManifest()
	m.Name = types.ACIdentifier("containerd.io/container/" + k.name)
	m.App = &k.app.App
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("image manifest of app %s: %w", k.name, err)
	}
	return text, nil
}

// enlist replaces the app's entry in the pod's manifest, by rename, and whatever
// volumes it had there.
func (k *composition) enlist(image []byte) error {
	path := filepath.Join(k.dir, podManifestFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var m schema.PodManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	sum := sha512.Sum512(image)
	id, err := types.NewHash("sha512-" + hex.EncodeToString(sum[:]))
	if err != nil {
		return err
	}
	name := types.ACIdentifier("containerd.io/container/" + k.name)
	entry := schema.RuntimeApp{
		Name: k.name, Image: schema.RuntimeImage{Name: &name, ID: *id}, App: &k.app.App,
		ReadOnlyRootFS: k.app.ReadOnly, Mounts: k.app.Mounts, Annotations: k.annotations,
	}
	m.Apps = append(slices.DeleteFunc(m.Apps, func(a schema.RuntimeApp) bool { return a.Name == k.name || !k.complete(a.Name) }), entry)
	m.Volumes = append(m.Volumes, k.app.Volumes...)
	if !k.mutable {
		m.Annotations.Set("coreos.com/rkt/stage1/mutable", "false")
	}
	return replaceManifest(path, &m)
}

// complete tells whether an app can be loaded. One that is only announced, since it is
// about to be added, enlists itself when it is: until then every app/add would stumble
// over it.
func (k *composition) complete(name types.ACName) bool {
	_, err := os.Stat(filepath.Join(k.dir, stage2Dir, string(name), "manifest"))
	return err == nil
}

// delist removes the app's entry from the pod's manifest. A pod without one is half
// removed.
func (k *composition) delist() error {
	path := filepath.Join(k.dir, podManifestFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var m schema.PodManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	m.Apps = slices.DeleteFunc(m.Apps, func(a schema.RuntimeApp) bool { return a.Name == k.name || !k.complete(a.Name) })
	return replaceManifest(path, &m)
}

// replaceManifest writes a pod's manifest by rename: it is read without a lock.
func replaceManifest(path string, m *schema.PodManifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, text, 0o640); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// withManifest calls f under the lock that rkt's app add and app rm take.
func withManifest(dir string, f func() error) error {
	lock, err := os.OpenFile(filepath.Join(dir, podLockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("lock the pod's manifest: %w", err)
	}
	return f()
}

// mountRoot shows an app's root where a stage1 of rkt's looks for it, in the pod's
// space. What is mounted below it comes along.
func (s *inSpace) mountRoot(from string, k *composition) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("open the root file system %s: %w", from, err)
	}
	defer unix.Close(fd)
	err = s.in(func() error {
		return inTree(k.dir, func(tree *os.Root) error { return mountIn(tree, fd, k.rootInTree()) })
	})
	if err != nil {
		return fmt.Errorf("mount the root file system: %w", err)
	}
	return nil
}

// mountIn attaches a mount at a path in a root, whatever links become of it meanwhile.
func mountIn(root *os.Root, fd int, path string) error {
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

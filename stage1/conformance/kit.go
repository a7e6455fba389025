package conformance

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// KitConfig configures the kit.
type KitConfig struct {
	Image  string   // path of an image: a directory or an ACI
	Excuse []string // fields of a spec that the stage1 may ignore, like accept in the configuration
	// Doors are for images that package stage1 does not call itself.
	Doors []stage1.Door `json:"-"`
	// Seed determines the values that checks ask for, and the name of the kit's program. With 0,
	// which is for examples, the program has its usual name.
	Seed uint32
	// Timeout is how long one check may take.
	Timeout time.Duration
	// Dir is the parent of the kit's directory; "" is the system's directory for temporary
	// files. Programs must be executable there.
	Dir string
	// Keep keeps the directory of a check that failed, with the journals of its pods.
	// Result.Kept names the directory.
	Keep bool
	// KeepIn is the parent of kept directories. If Keep is set and this is "", Open makes
	// one.
	KeepIn string
}

// Kit is a rendered image that can be checked. A process can have only one, because the kit
// makes the process a child subreaper.
type Kit struct {
	config   KitConfig
	values   *values
	dir      string // of the kit, with the data directory of its pods
	rootfs   string // root of all apps
	cgroups  string // path of the cgroup that contains the apps' cgroups
	image    *image.Image
	stage1   pod.Stage1
	store    *disk.Store
	images   *image.Store
	children *proc.Children
	isolates bool // whether the image honours the fields that isolate sets
	trials   int
	podID    string // the UUID of every bare pod; only one exists at a time
	keeps    bool   // whether the kit has made KeepIn
}

// ImageError is the error for an image that cannot be rendered, and so cannot be checked.
type ImageError struct{ Err error }

func (e *ImageError) Error() string { return e.Err.Error() }

// Unwrap returns the tree store's error.
func (e *ImageError) Unwrap() error { return e.Err }

// Open renders an image into a store of the kit's own, and prepares its checks. If no pod
// could use the image, the error is an *ImageError.
func Open(ctx context.Context, c KitConfig) (*Kit, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a stage1 can only be run by root")
	}
	program, err := staticProgram()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.Dir, "stage1-verify-")
	if err != nil {
		return nil, err
	}
	k := &Kit{config: c, values: draw(c.Seed), dir: dir, rootfs: filepath.Join(dir, "rootfs"), cgroups: "/" + filepath.Base(dir), podID: fmt.Sprintf("7f3d2c1a-5b64-4e0f-9a77-%012x", os.Getpid())}
	if c.Keep && c.KeepIn == "" {
		if k.config.KeepIn, err = os.MkdirTemp(c.Dir, "stage1-verify-kept-"); err != nil {
			return nil, errors.Join(err, k.Close())
		}
		k.keeps = true
	}
	if err = k.open(ctx, program); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kit) open(ctx context.Context, program string) error {
	// Do not let other users list the directory, but let apps in user namespaces reach
	// their roots.
	if err := os.Chmod(k.dir, 0o711); err != nil {
		return err
	}
	if err := makeRoot(k.rootfs, program, k.values); err != nil {
		return fmt.Errorf("make a root for apps: %w", err)
	}
	// On most hosts the root of a container is a mount of its own, and shared. Do the same.
	if err := unix.Mount(k.rootfs, k.rootfs, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the root of apps: %w", err)
	}
	if err := unix.Mount("", k.rootfs, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("mount the root of apps: %w", err)
	}
	if err := proc.SetSubreaper(); err != nil {
		return err
	}
	k.children = proc.NewChildren()
	var err error
	if k.store, err = disk.OpenStore(k.dir); err != nil {
		return err
	}
	k.store.Children = k.children
	if k.images, err = image.OpenStore(k.dir); err != nil {
		return err
	}
	return k.load(ctx, k.config.Image)
}

// load makes an image the one to check.
func (k *Kit) load(ctx context.Context, path string) (err error) {
	k.config.Image = path
	if k.image, err = k.images.Image(ctx, path, ""); err != nil {
		return &ImageError{err}
	}
	// Ignore the error: the check of features/probe reports it.
	k.image, _, _ = stage1.Probe(ctx, k.images, k.image, k.image.Name(), k.children)
	if k.stage1, err = k.newStage1(); err != nil {
		return &ImageError{err}
	}
	wish := &specs.Spec{Linux: &specs.Linux{}}
	isolate(wish)
	k.isolates = k.declares(wish) == nil
	return nil
}

// Close removes everything that the kit has made.
func (k *Kit) Close() error {
	var err error
	if k.children != nil {
		ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
		defer cancel()
		err = k.children.Close(ctx)
	}
	left, _ := filepath.Glob(filepath.Join(k.dir, "stage1-verify-*")) // of workers that were killed
	if len(left) > 0 {
		killDescendants()
	}
	for _, l := range left {
		for _, d := range cgroupDirs("/" + filepath.Base(l)) {
			_ = os.Remove(d)
		}
		_ = removeCgroups("/" + filepath.Base(l))
	}
	for _, m := range mountsBelow(k.dir) {
		_ = unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if k.keeps {
		_ = os.Remove(k.config.KeepIn) // fails if a directory is kept in it
	}
	return errors.Join(err, removeCgroups(k.cgroups), os.RemoveAll(k.dir))
}

// newStage1 returns a stage1 for one pod.
func (k *Kit) newStage1() (pod.Stage1, error) { return k.stage1Of(k.image, k.config.Excuse) }

// stage1Of returns a stage1 of an image, which may ignore the excused fields.
func (k *Kit) stage1Of(i *image.Image, excused []string) (pod.Stage1, error) {
	opened, err := stage1.For(i, i.Name(), k.children, stage1.Rules{Excused: excused}, k.config.Doors...)
	if s, ok := opened.(*stage1.Stage1); ok {
		s.Stuck = stuck
		s.Limit = patient(s.Limit)
	}
	return opened, err
}

// patient returns the deadlines of entrypoints, as much longer on a busy machine as all other limits of
// the kit.
func patient(limit func(abi.Entrypoint) time.Duration) func(abi.Entrypoint) time.Duration {
	pace := Pace()
	return func(e abi.Entrypoint) time.Duration { return limit(e) * pace }
}

// Image returns the image that is checked.
func (k *Kit) Image() *image.Image { return k.image }

// mutable reports whether a pod can have more than one app.
func (k *Kit) mutable() bool {
	return k.image.Has(abi.AppAdd) && k.image.Has(abi.AppStart) && k.image.Has(abi.AppRm)
}

// staticProgram returns the path of this executable. It must be static, because it runs in
// a root without libraries.
func staticProgram() (string, error) {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", err
	}
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is not linked statically, and the kit runs it in roots that are empty: build it with CGO_ENABLED=0", path)
		}
	}
	return "/proc/self/exe", nil
}

func copyFile(from, to string) (err error) {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close(), os.Chmod(to, 0o755))
}

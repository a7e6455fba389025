package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Image is an image in the tree store. It does not change.
type Image struct {
	dir      string // in the store: manifest and rootfs
	digest   string
	manifest *manifest
	text     []byte // of the manifest
	features features
	isACI    bool // the image came as an ACI
	isProbed bool // features are an answer of features/probe
	// lock is the tree's directory, locked against collection while the file is open. The
	// image of an existing pod needs no lock, because the pod's directory names its tree.
	lock *os.File
}

// openImage opens an image directory that was verified when it was rendered.
func openImage(dir, digest string) (*Image, error) {
	i := &Image{dir: dir, digest: digest}
	file := filepath.Join(dir, "manifest")
	var err error
	if i.text, err = readManifest(file); err != nil {
		return nil, err
	}
	if i.manifest, err = parseVerified(i.text, file); err != nil {
		return nil, err
	}
	if i.manifest.features != "" {
		if i.features, err = readFeatures(dir, i.manifest.features); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "rootfs", i.manifest.features), err)
		}
	}
	return i, nil
}

func readManifest(file string) ([]byte, error) {
	// Do not follow a link, which could lead out of the image, and do not block in the open
	// of a fifo.
	f, err := proc.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("a stage1 image has a file called manifest: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(invalid("%s: not a regular file", file), err)
	}
	text, err := readLimited(f, maxManifest+1)
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("%s: more than %d bytes: %w", file, maxManifest, errdefs.ErrInvalidArgument)
	}
	return text, err
}

// readLimited reads a file to its end, or as much of it. It makes a buffer of the file's size.
func readLimited(f *os.File, most int64) ([]byte, error) {
	var b bytes.Buffer
	if st, err := f.Stat(); err == nil {
		b.Grow(int(min(st.Size(), most)) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(f, most))
	return b.Bytes(), err
}

// Features returns the runtime-spec's features structure of an image directory as JSON, or
// nil if the image declares none. The directory need not be in a store.
func Features(dir string) (_ []byte, err error) {
	defer prefix(&err, "stage1 image %s", dir)
	i, err := openImage(dir, "")
	if err != nil {
		return nil, err
	}
	return i.OCIFeatures(), nil
}

// Probes reports whether an image directory has the entrypoint features/probe.
func Probes(dir string) bool {
	i, err := openImage(dir, "")
	return err == nil && !i.RktABI() && i.Has(abi.FeaturesProbe)
}

// OwnsLayers reports whether an image directory has abi.OwnLayers.
func OwnsLayers(dir string) bool {
	file := filepath.Join(dir, "manifest")
	text, err := readManifest(file)
	if err != nil || !bytes.Contains(text, []byte(abi.OwnLayers)) { // most have no such word, and need not be parsed
		return false
	}
	m, err := parseVerified(text, file)
	return err == nil && slices.Contains(m.own, abi.OwnLayers)
}

// Close allows the image's tree to be collected, unless it is still in use. A process that
// makes pods with the image need not call Close, because the lock ends with the process.
func (i *Image) Close() error {
	if i.lock == nil {
		return nil
	}
	return i.lock.Close()
}

// Name returns the short name of the stage1: the last part of the appc name in its manifest,
// without the prefix "stage1-".
func (i *Image) Name() string { return strings.TrimPrefix(path.Base(i.manifest.name), "stage1-") }

// Digest returns "sha512-" and 128 hexadecimal digits.
func (i *Image) Digest() string { return i.digest }

// AppcName returns the name in the image's manifest, such as "rkt.io/stage1-native".
func (i *Image) AppcName() string { return i.manifest.name }

// Manifest returns the text of the image's manifest.
func (i *Image) Manifest() []byte { return i.text }

// Rootfs returns the directory of the image's tree in the store.
func (i *Image) Rootfs() string { return filepath.Join(i.dir, "rootfs") }

// Version returns the interface version of the image's entrypoints, from 1 to
// abi.Version.
func (i *Image) Version() int { return i.manifest.version }

// RktABI reports whether the image has the rkt ABI, that is, an interface version from 1 to
// 6.
func (i *Image) RktABI() bool { return i.manifest.version < abi.Version }

// sinceMutable is the first interface version with entrypoints that add apps to a pod.
const sinceMutable = 5

// Mutable reports whether apps can be added to a running pod of the image. An image of the
// rkt ABI needs two more entrypoints for that: enter, to act inside a pod, and attach, to
// reach the streams of an app. Pods of other images are made with their only app.
func (i *Image) Mutable() bool {
	needed := addsApps()
	if i.RktABI() {
		needed = append(needed, abi.AppStop, abi.Enter, abi.Attach)
	}
	return i.Version() >= sinceMutable && !slices.ContainsFunc(needed, func(e abi.Entrypoint) bool { return !i.Has(e) })
}

// addsApps returns the entrypoints that an image needs for pods that can get and lose apps.
func addsApps() []abi.Entrypoint { return []abi.Entrypoint{abi.AppAdd, abi.AppStart, abi.AppRm} }

// NeedsStage2 reports whether stage 0 mounts a writable directory on Stage2.
func (i *Image) NeedsStage2() bool { return !i.manifest.noStage2 }

// Has reports whether the image declares an entrypoint.
func (i *Image) Has(e abi.Entrypoint) bool { return i.Entrypoint(e) != "" }

// Skips reports whether stage 0 does not call an entrypoint, because it has nothing to do.
func (i *Image) Skips(e abi.Entrypoint) bool { return slices.Contains(i.manifest.skipped, e) }

// Entrypoint returns the absolute path of an entrypoint inside the image's rootfs, or "" if
// the image does not declare it.
func (i *Image) Entrypoint(e abi.Entrypoint) string { return i.manifest.paths[e] }

// Socket returns the absolute path inside rootfs of the socket on which the stage1 answers
// calls. It is "" if every call is an execution.
func (i *Image) Socket() string { return i.manifest.socket }

// Owns reports whether the stage1 does by itself what a word of abi.AnnotationOwn names.
func (i *Image) Owns(o abi.Own) bool { return slices.Contains(i.manifest.own, o) }

// Deadline returns how long a call may take by the image's own declaration, or 0.
func (i *Image) Deadline(e abi.Entrypoint) time.Duration { return i.manifest.limits[e] }

// Fields returns the JSON pointers into config.json that the image declares, in its
// features document or in its answer of features/probe. ok is false if it has neither.
func (i *Image) Fields() (pointers []string, ok bool) {
	return i.features.Fields, i.manifest.features != "" || i.isProbed
}

// OCIFeatures returns the runtime-spec's features structure that the image declares, as
// JSON, or nil if it declares none.
func (i *Image) OCIFeatures() []byte {
	if string(i.features.OCI) == "null" {
		return nil
	}
	return i.features.OCI
}

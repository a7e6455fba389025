package stage1

import (
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Image is an image in the tree store. It does not change.
type Image struct {
	dir      string // in the store: manifest and rootfs
	digest   string
	manifest *manifest
	text     []byte // of the manifest
	features features
	isACI    bool

	// lock is the tree, locked against collection as long as it is open. Of the image
	// of a pod that is there already, nothing needs to be: the pod says what it has.
	lock *os.File

	// declared is made when the first config.json is checked: `delete` and
	// `-info` check none.
	declared func() *fields
}

// openImage opens an image directory that was verified when it was rendered.
func openImage(dir, digest string) (*Image, error) {
	i := &Image{dir: dir, digest: digest}
	file := filepath.Join(dir, "manifest")
	var err error
	if i.text, err = readManifest(file); err != nil {
		return nil, err
	}
	if i.manifest, err = parseManifest(i.text, file); err != nil {
		return nil, err
	}
	if i.manifest.features != "" {
		if i.features, err = readFeatures(dir, i.manifest.features); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "rootfs", i.manifest.features), err)
		}
	}
	i.declared = sync.OnceValue(func() *fields { return newFields(stage0Fields(), i.ownFields()) })
	return i, nil
}

func readManifest(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("a stage1 image has a file called manifest: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("%s: more than %d bytes: %w", file, maxManifest, errdefs.ErrInvalidArgument)
	}
	return text, err
}

// Features returns the runtime-spec's features structure of an image directory,
// which need not be in a store, as JSON; nil if it declares none.
func Features(dir string) ([]byte, error) {
	i, err := openImage(dir, "")
	if err != nil {
		return nil, fmt.Errorf("stage1 image %s: %w", dir, err)
	}
	return i.OCIFeatures(), nil
}

// Close lets the image's tree be collected if nothing else leads to it. A process that
// makes pods of it does not call this: the end of the process is enough.
func (i *Image) Close() error {
	if i.lock == nil {
		return nil
	}
	return i.lock.Close()
}

// Name returns what people call the stage1: the last part of the appc name in
// its manifest, without the "stage1-" that it usually begins with.
func (i *Image) Name() string { return strings.TrimPrefix(path.Base(i.manifest.name), "stage1-") }

// Digest returns "sha512-" and 128 hexadecimal digits.
func (i *Image) Digest() string { return i.digest }

// Has tells whether the image declares an entrypoint.
func (i *Image) Has(e abi.Entrypoint) bool { return i.manifest.paths[e] != "" }

// OCIFeatures returns the runtime-spec's features structure as the image tells
// it, as JSON; nil if it declares none.
func (i *Image) OCIFeatures() []byte {
	if string(i.features.OCI) == "null" {
		return nil
	}
	return i.features.OCI
}

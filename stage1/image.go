package stage1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

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
}

// features is the document that the features annotation names.
type features struct {
	OCI    json.RawMessage `json:"oci"`
	Fields []string        `json:"fields"`
}

func openImage(dir, digest string) (*Image, error) {
	file := filepath.Join(dir, "manifest")
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("stage1 image: %w", err)
	}
	m, err := parseManifest(text, file)
	if err != nil {
		return nil, err
	}
	i := &Image{dir: dir, digest: digest, manifest: m, text: text}
	return i, i.readFeatures()
}

func (i *Image) readFeatures() error {
	if i.manifest.features == "" {
		return nil
	}
	file := filepath.Join(i.dir, "rootfs", i.manifest.features)
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("features of stage1 %s: %w", i.manifest.name, err)
	}
	if err := json.Unmarshal(text, &i.features); err != nil {
		return fmt.Errorf("features of stage1 %s: %s: %v: %w", i.manifest.name, file, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// Features returns the runtime-spec's features structure of an image directory
// that is not in a store, as JSON, or nothing.
func Features(dir string) ([]byte, error) {
	i, err := openImage(dir, "")
	if err != nil {
		return nil, err
	}
	return i.OCIFeatures(), nil
}

// Name returns the appc name in the image's manifest.
func (i *Image) Name() string { return i.manifest.name }

// Digest returns "sha512-" and 128 hexadecimal digits.
func (i *Image) Digest() string { return i.digest }

// Has tells whether the image declares an entrypoint.
func (i *Image) Has(e abi.Entrypoint) bool { return i.manifest.paths[e] != "" }

// OCIFeatures returns the runtime-spec's features structure as the image tells
// it, as JSON, or nothing.
func (i *Image) OCIFeatures() []byte { return i.features.OCI }

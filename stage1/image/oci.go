package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/containerd/errdefs"
)

// maxDocument is the largest size of an index and of a manifest of an OCI image, in bytes.
const maxDocument = 4 << 20

// Descriptor names a blob, as in the OCI image spec.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"` // sha256:…
	Size        int64             `json:"size"`
	Platform    *Platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Platform is the operating system and the architecture of an image.
type Platform struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Variant      string `json:"variant,omitempty"` // of the architecture; every stage1 runs on all variants
}

// Blobs is a source of an OCI image's blobs. Open need not verify the digest of a blob,
// because its caller does.
type Blobs interface {
	Open(context.Context, Descriptor) (io.ReadCloser, error)
}

// document is an index or a manifest.
type document struct {
	Manifests []Descriptor `json:"manifests"`
	Layers    []Descriptor `json:"layers"`
}

// Import brings a stage1 image that is distributed as an OCI image into the store. The
// image's layers have the file "manifest" and the directory "rootfs". In an index, Import
// chooses the image for this platform. It verifies the digests of all blobs. The result,
// with its digest, is the same as for a directory with the same files. ref is recorded as
// the source.
func (s *Store) Import(ctx context.Context, blobs Blobs, top Descriptor, ref string) (_ *Image, err error) {
	defer prefix(&err, "import stage1 image %s", ref)
	layers, err := layersOf(ctx, blobs, top)
	if err != nil {
		return nil, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	i, err := s.add(func(tmp string) (string, error) {
		digest, err := fillLayers(ctx, blobs, layers, tmp)
		if err != nil {
			return "", err
		}
		return digest, s.install(filled{digest: digest}, ref, tmp, "")
	})
	if err != nil {
		return nil, err
	}
	return i, s.rememberImport(i, ref, "")
}

// fillLayers unpacks layers, and returns the digest of the resulting directory.
func fillLayers(ctx context.Context, blobs Blobs, layers []Descriptor, to string) (string, error) {
	budget := int64(maxImage)
	for _, l := range layers {
		if err := applyLayer(ctx, blobs, l, to, &budget); err != nil {
			return "", fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	for _, name := range []string{"manifest", "rootfs"} {
		if _, err := os.Lstat(filepath.Join(to, name)); errors.Is(err, fs.ErrNotExist) {
			return "", invalid("its layers have no %q: an OCI image that holds a stage1 has the file manifest and the directory rootfs at its top", name)
		}
	}
	if err := isWhole(to, "manifest"); err != nil {
		return "", err
	}
	return treeDigest(to)
}

// layersOf returns the layers of the image to which a descriptor leads, the lowest first.
func layersOf(ctx context.Context, blobs Blobs, d Descriptor) ([]Descriptor, error) {
	for range 3 { // at most an index, an index in it, and a manifest
		var doc document
		if err := readDocument(ctx, blobs, d, &doc); err != nil {
			return nil, err
		}
		if len(doc.Manifests) == 0 {
			if len(doc.Layers) == 0 {
				return nil, invalid("%s has neither manifests nor layers: it is not an OCI image", d.Digest)
			}
			return doc.Layers, nil
		}
		next, err := ofThisPlatform(doc.Manifests)
		if err != nil {
			return nil, err
		}
		d = next
	}
	return nil, invalid("its indexes lead to no manifest")
}

func ofThisPlatform(all []Descriptor) (Descriptor, error) {
	var offered []string
	for _, d := range all {
		if d.Platform == nil && len(all) == 1 {
			return d, nil
		}
		if d.Platform == nil {
			continue
		}
		if d.Platform.OS == runtime.GOOS && d.Platform.Architecture == runtime.GOARCH {
			return d, nil
		}
		offered = append(offered, d.Platform.OS+"/"+d.Platform.Architecture)
	}
	return Descriptor{}, fmt.Errorf("there is no image for %s/%s, only for %s: %w",
		runtime.GOOS, runtime.GOARCH, strings.Join(offered, ", "), errdefs.ErrNotFound)
}

func readDocument(ctx context.Context, blobs Blobs, d Descriptor, to *document) error {
	if d.Size > maxDocument {
		return invalid("%s is %d bytes long, more than an index or manifest may be", d.Digest, d.Size)
	}
	b, err := OpenBlob(ctx, blobs, d)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(b, maxDocument+1))
	if err = errors.Join(err, b.Close()); err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return invalid("%s: %v", d.Digest, err)
	}
	return nil
}

// blob is the content of a descriptor that is being read.
type blob struct {
	io.Reader
	source io.ReadCloser
	want   Descriptor
	hash   hash.Hash
	read   int64
}

// OpenBlob opens a blob and verifies it while it is read: Close reads the rest, and returns an
// error if size or digest are not those of the descriptor. Until then the content is not
// verified.
func OpenBlob(ctx context.Context, blobs Blobs, d Descriptor) (io.ReadCloser, error) {
	if digits, ok := strings.CutPrefix(d.Digest, "sha256:"); !ok || len(digits) != 2*sha256.Size || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, invalid("the digest %.80q is not \"sha256:\" and 64 digits of 0-9 and a-f", d.Digest)
	}
	source, err := blobs.Open(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Digest, err)
	}
	b := &blob{source: source, want: d, hash: sha256.New()}
	b.Reader = io.TeeReader(io.LimitReader(source, d.Size+1), b) // a source may have no end
	return b, nil
}

// Write gets the bytes that were read, and adds them to the hash.
func (b *blob) Write(p []byte) (int, error) {
	b.read += int64(len(p))
	return b.hash.Write(p)
}

// Close reads the rest, and returns an error if the blob does not match its descriptor.
func (b *blob) Close() error {
	_, err := io.Copy(io.Discard, b)
	if err = errors.Join(err, b.source.Close()); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(b.hash.Sum(nil)); got != b.want.Digest || b.read != b.want.Size {
		return fmt.Errorf("its content is %d bytes with the digest %s, and has to be %d bytes with %s: %w",
			b.read, got, b.want.Size, b.want.Digest, errdefs.ErrDataLoss)
	}
	return nil
}

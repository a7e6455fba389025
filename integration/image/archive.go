package image

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Write writes the archive of some images, for this machine's platform.
func Write(w io.Writer, images ...Image) error {
	a := archive{tar: tar.NewWriter(w), seen: map[digest.Digest]bool{}}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, img := range images {
		desc, err := a.image(img)
		if err != nil {
			return fmt.Errorf("image %s: %w", img.Name, err)
		}
		index.Manifests = append(index.Manifests, desc)
	}
	if err := a.json("index.json", index); err != nil {
		return err
	}
	if err := a.json(ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}); err != nil {
		return err
	}
	return a.tar.Close()
}

// WriteFile writes the archive of some images to a file.
func WriteFile(path string, images ...Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := Write(f, images...); err != nil {
		return err
	}
	return f.Close()
}

type archive struct {
	tar  *tar.Writer
	seen map[digest.Digest]bool
}

func (a *archive) image(img Image) (ocispec.Descriptor, error) {
	desc, err := builder{a.blob}.manifest(img, ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH})
	desc.Annotations = map[string]string{
		"io.containerd.image.name":      img.Name,
		ocispec.AnnotationRefName:       img.Name[strings.LastIndex(img.Name, ":")+1:],
		ocispec.AnnotationBaseImageName: img.Name,
	}
	return desc, err
}

func (a *archive) blob(desc ocispec.Descriptor, b []byte) error {
	if a.seen[desc.Digest] {
		return nil
	}
	a.seen[desc.Digest] = true
	return a.file(path.Join("blobs", desc.Digest.Algorithm().String(), desc.Digest.Encoded()), b)
}

func (a *archive) json(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.file(name, b)
}

func (a *archive) file(name string, b []byte) error {
	if err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(b)), ModTime: epoch}); err != nil {
		return err
	}
	_, err := a.tar.Write(b)
	return err
}

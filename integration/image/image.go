// Package image writes OCI image archives that `ctr image import` takes, from
// files of this machine: no registry is involved. It knows nothing of what the
// images are for, but for Busybox, the one that most cases run.
package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"sort"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// File is one entry of a layer. With Link it is a symbolic link, with a name
// that ends in a slash a directory.
type File struct {
	Name    string
	Mode    int64
	UID     int
	Link    string
	Content []byte
}

// Image is what becomes one image of an archive.
type Image struct {
	Name   string // reference, with a tag
	Config ocispec.ImageConfig
	Layers [][]File // lowest first
}

// epoch makes archives reproducible, so that a second import finds everything
// there.
var epoch = time.Unix(1_700_000_000, 0)

// Write writes the archive of some images.
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
	config := ocispec.Image{
		Created:  &epoch,
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Config:   img.Config,
		RootFS:   ocispec.RootFS{Type: "layers"},
	}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, files := range img.Layers {
		layer, err := layerTar(files)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		desc, err := a.blob(ocispec.MediaTypeImageLayer, layer)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, desc.Digest)
		manifest.Layers = append(manifest.Layers, desc)
	}
	var err error
	if manifest.Config, err = a.jsonBlob(ocispec.MediaTypeImageConfig, config); err != nil {
		return ocispec.Descriptor{}, err
	}
	desc, err := a.jsonBlob(ocispec.MediaTypeImageManifest, manifest)
	desc.Platform = &config.Platform
	desc.Annotations = map[string]string{
		"io.containerd.image.name":      img.Name,
		ocispec.AnnotationRefName:       img.Name[strings.LastIndex(img.Name, ":")+1:],
		ocispec.AnnotationBaseImageName: img.Name,
	}
	return desc, err
}

func (a *archive) jsonBlob(mediaType string, v any) (ocispec.Descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return a.blob(mediaType, b)
}

func (a *archive) blob(mediaType string, b []byte) (ocispec.Descriptor, error) {
	d := digest.FromBytes(b)
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(b))}
	if a.seen[d] {
		return desc, nil
	}
	a.seen[d] = true
	return desc, a.file(path.Join("blobs", d.Algorithm().String(), d.Encoded()), b)
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

// layerTar packs files with all their parent directories.
func layerTar(files []File) ([]byte, error) {
	all := map[string]File{}
	for _, f := range files {
		for dir := path.Dir(strings.TrimSuffix(f.Name, "/")); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if _, ok := all[dir+"/"]; !ok {
				all[dir+"/"] = File{Name: dir + "/", Mode: 0o755}
			}
		}
		all[f.Name] = f
	}
	names := make([]string, 0, len(all))
	for n := range all {
		names = append(names, n)
	}
	sort.Strings(names)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, n := range names {
		f := all[n]
		h := &tar.Header{Name: f.Name, Mode: f.Mode, Uid: f.UID, Gid: f.UID, Size: int64(len(f.Content)), ModTime: epoch, Typeflag: tar.TypeReg}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

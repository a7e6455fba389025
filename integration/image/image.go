// Package image makes OCI images from files of this machine: as archives for `ctr image
// import`, and as the blobs that a registry serves. The function Busybox makes the image that
// most cases use.
package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// File is one entry of a layer. If Link is set, it is a symbolic link; if its name ends in a
// slash, a directory.
type File struct {
	Name    string
	Mode    int64
	UID     int
	Link    string
	Content []byte
}

// Image describes an image of an archive or of a registry.
type Image struct {
	Name   string // reference, with a tag
	Config ocispec.ImageConfig
	Layers [][]File // lowest first
}

// epoch makes images reproducible, so that a second import has nothing to do.
var epoch = time.Unix(1_700_000_000, 0)

// Index makes the image for some platforms. All have the same files, except etc/platform in the
// lowest layer, so that no two platforms share that layer. Index calls put for each blob, after
// the blobs to which it refers; the last blob is the index, whose descriptor it returns.
func Index(img Image, platforms []ocispec.Platform, put func(ocispec.Descriptor, []byte) error) (ocispec.Descriptor, error) {
	if len(img.Layers) == 0 {
		return ocispec.Descriptor{}, errors.New("it has no layers")
	}
	b := builder{put}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, p := range platforms {
		its := img
		its.Layers = slices.Clone(img.Layers)
		name := File{Name: "etc/platform", Mode: 0o644, Content: fmt.Appendln(nil, p.OS, p.Architecture, p.Variant)}
		its.Layers[0] = append(slices.Clip(its.Layers[0]), name)
		desc, err := b.manifest(its, p)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		index.Manifests = append(index.Manifests, desc)
	}
	return b.json(ocispec.MediaTypeImageIndex, index)
}

// builder makes the blobs of images. It may call put several times for the same blob.
type builder struct {
	put func(ocispec.Descriptor, []byte) error
}

func (b builder) manifest(img Image, platform ocispec.Platform) (ocispec.Descriptor, error) {
	config := ocispec.Image{
		Created:  &epoch,
		Platform: platform,
		Config:   img.Config,
		RootFS:   ocispec.RootFS{Type: "layers"},
	}
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, files := range img.Layers {
		layer, err := layerTar(files)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		desc, err := b.blob(ocispec.MediaTypeImageLayer, layer)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, desc.Digest)
		manifest.Layers = append(manifest.Layers, desc)
	}
	var err error
	if manifest.Config, err = b.json(ocispec.MediaTypeImageConfig, config); err != nil {
		return ocispec.Descriptor{}, err
	}
	desc, err := b.json(ocispec.MediaTypeImageManifest, manifest)
	desc.Platform = &config.Platform
	return desc, err
}

func (b builder) json(mediaType string, v any) (ocispec.Descriptor, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return b.blob(mediaType, content)
}

func (b builder) blob(mediaType string, content []byte) (ocispec.Descriptor, error) {
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	return desc, b.put(desc, content)
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

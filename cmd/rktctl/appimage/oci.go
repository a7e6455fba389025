package appimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

const (
	// maxDocument is the largest size of an index, a manifest or a configuration, in bytes.
	maxDocument = 4 << 20
	// maxLayers is the largest number of an image's layers. Docker makes 127 at most.
	maxLayers = 1024
)

// Annotations that name an image in an index.
const (
	containerdName = "io.containerd.image.name"
	dockerConfig   = "application/vnd.docker.container.image.v1+json"
)

// document is an index or a manifest.
type document struct {
	Manifests []image.Descriptor `json:"manifests"`
	Config    image.Descriptor   `json:"config"`
	Layers    []image.Descriptor `json:"layers"`
}

// layer is a layer that was not yet read.
type layer struct {
	name string // in errors
	// open returns the layer, which may be packed. Close reads the rest, and returns an
	// error if the layer is not the one that the manifest names.
	open func(context.Context) (io.ReadCloser, error)
}

// findOCI finds an image by the descriptor of its index or manifest.
func findOCI(ctx context.Context, blobs image.Blobs, d image.Descriptor) (*source, error) {
	m, d, err := manifestOf(ctx, blobs, d)
	if err != nil {
		return nil, err
	}
	if m.Config.MediaType != ocispec.MediaTypeImageConfig && m.Config.MediaType != dockerConfig {
		return nil, invalid("%s is not an image of an app: its configuration is of the type %q", d.Digest, m.Config.MediaType)
	}
	s := &source{digest: d.Digest}
	text, err := readAll(ctx, blobs, m.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := json.Unmarshal(text, &s.config); err != nil {
		return nil, invalid("configuration %s: %v", m.Config.Digest, err)
	}
	for _, l := range m.Layers {
		if strings.HasSuffix(l.MediaType, "+encrypted") {
			return nil, fmt.Errorf("layer %s is encrypted, which is not supported: %w", l.Digest, errdefs.ErrNotImplemented)
		}
		s.layers = append(s.layers, layer{l.Digest, func(ctx context.Context) (io.ReadCloser, error) { return image.OpenBlob(ctx, blobs, l) }})
	}
	return s, s.check()
}

// check refuses a configuration that does not belong to the layers or to this machine.
func (s *source) check() error {
	if len(s.layers) != len(s.config.RootFS.DiffIDs) || len(s.layers) > maxLayers {
		return invalid("there are %d layers, and digests of %d in the configuration; at most %d are allowed",
			len(s.layers), len(s.config.RootFS.DiffIDs), maxLayers)
	}
	for _, id := range s.config.RootFS.DiffIDs {
		if err := id.Validate(); err != nil || id.Algorithm() != digest.SHA256 {
			return invalid("the digest %.80q of a layer in the configuration is not one of sha256", id)
		}
	}
	p := s.config.Platform
	if p.OS != "" && p.Architecture != "" && !platforms.Default().Match(p) {
		return errOtherMachine(platforms.Format(p))
	}
	return nil
}

func errOtherMachine(offered ...string) error {
	return fmt.Errorf("there is no image for %s, only for %s: %w", platforms.DefaultString(), strings.Join(offered, ", "), errdefs.ErrNotFound)
}

// manifestOf returns the manifest for this machine to which a descriptor leads.
func manifestOf(ctx context.Context, blobs image.Blobs, d image.Descriptor) (document, image.Descriptor, error) {
	for range 3 { // at most an index, an index in it, and a manifest
		var doc document
		text, err := readAll(ctx, blobs, d)
		if err != nil {
			return doc, d, err
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			return doc, d, invalid("%s: %v", d.Digest, err)
		}
		if len(doc.Manifests) == 0 {
			if doc.Config.Digest == "" {
				return doc, d, invalid("%s has neither manifests nor a configuration: it is not an OCI image", d.Digest)
			}
			return doc, d, nil
		}
		fit := ofMachine(doc.Manifests)
		if len(fit) == 0 {
			return doc, d, errOtherMachine(platformsOf(doc.Manifests)...)
		}
		d = fit[0]
	}
	return document{}, d, invalid("its indexes lead to no manifest")
}

// ofMachine returns the descriptors that are for this machine, as containerd chooses them: the
// best first.
func ofMachine(all []image.Descriptor) []image.Descriptor {
	fit := slices.DeleteFunc(slices.Clone(all), func(d image.Descriptor) bool { return !platforms.Default().Match(platformOf(d)) })
	slices.SortStableFunc(fit, compare)
	return fit
}

// compare orders descriptors by how well they fit this machine.
func compare(a, b image.Descriptor) int {
	m := platforms.Default()
	switch {
	case m.Less(platformOf(a), platformOf(b)):
		return -1
	case m.Less(platformOf(b), platformOf(a)):
		return 1
	}
	return 0
}

// platformOf returns the platform of an image. One that names none is for this machine.
func platformOf(d image.Descriptor) ocispec.Platform {
	if d.Platform == nil {
		return platforms.DefaultSpec()
	}
	return ocispec.Platform{OS: d.Platform.OS, Architecture: d.Platform.Architecture, Variant: d.Platform.Variant}
}

func platformsOf(all []image.Descriptor) (names []string) {
	for _, d := range all {
		names = append(names, platforms.Format(platformOf(d)))
	}
	return names
}

// choose returns the image of an index that has a name, or the only one for this machine.
func choose(all []image.Descriptor, name string) (image.Descriptor, error) {
	var names []string
	chosen := slices.DeleteFunc(slices.Clone(all), func(d image.Descriptor) bool {
		its := namesOf(d)
		names = append(names, its...)
		return name != "" && !slices.Contains(its, name)
	})
	fit := ofMachine(chosen)
	slices.Sort(names)
	list := strings.Join(slices.Compact(names), ", ")
	switch {
	case len(chosen) == 0 && name != "":
		return image.Descriptor{}, fmt.Errorf("there is no image %s in it, only %s: %w", name, list, errdefs.ErrNotFound)
	case len(chosen) == 0:
		return image.Descriptor{}, invalid("there is no image in it")
	case len(fit) == 0:
		return image.Descriptor{}, errOtherMachine(platformsOf(chosen)...)
	case slices.ContainsFunc(fit, func(d image.Descriptor) bool { return d.Digest != fit[0].Digest && compare(d, fit[0]) == 0 }):
		return image.Descriptor{}, invalid("there are several images in it: name one of them after an @, such as PATH@NAME: %s", list)
	}
	return fit[0], nil
}

// namesOf returns the names by which an image of an index can be chosen.
func namesOf(d image.Descriptor) []string {
	names := []string{d.Digest}
	for _, a := range []string{containerdName, ocispec.AnnotationRefName} {
		if n := d.Annotations[a]; n != "" {
			names = append(names, n)
		}
	}
	return names
}

func readAll(ctx context.Context, blobs image.Blobs, d image.Descriptor) ([]byte, error) {
	if d.Size > maxDocument {
		return nil, invalid("%s is %d bytes long, and may have %d", d.Digest, d.Size, maxDocument)
	}
	b, err := image.OpenBlob(ctx, blobs, d)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(b)
	return text, errors.Join(err, b.Close())
}

// findInLayout finds an image in a directory with an OCI image layout.
func findInLayout(ctx context.Context, dir, name string) (*source, error) {
	index, err := image.Layout(dir).Index()
	if err != nil {
		return nil, err
	}
	d, err := choose(index, name)
	if err != nil {
		return nil, err
	}
	return findOCI(ctx, image.Layout(dir), d)
}

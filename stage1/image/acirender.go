package image

import (
	"context"
	"crypto/sha512"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/appc/spec/pkg/acirenderer"
	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
)

// resolved gives acirenderer access to the images. The key of an image is its image id.
type resolved struct{ *resolver }

var _ acirenderer.ACIRegistry = resolved{}

// ReadStream implements acirenderer.ACIProvider.
func (r resolved) ReadStream(id string) (io.ReadCloser, error) {
	f, plain, err := openACI(r.found[id].path)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(plain, maxImage), f}, nil
}

// ResolveKey implements acirenderer.ACIProvider. short may be a prefix of an image id.
func (r resolved) ResolveKey(short string) (string, error) {
	for id := range r.found {
		if strings.HasPrefix(id, short) {
			return id, nil
		}
	}
	return "", fmt.Errorf("image %s: %w", short, errdefs.ErrNotFound)
}

// HashToKey implements acirenderer.ACIProvider.
func (resolved) HashToKey(h hash.Hash) string { return digestText(h) }

// GetImageManifest implements acirenderer.ACIRegistry.
func (r resolved) GetImageManifest(id string) (*schema.ImageManifest, error) {
	return r.found[id].manifest, nil
}

// GetACI implements acirenderer.ACIRegistry.
func (r resolved) GetACI(name types.ACIdentifier, labels types.Labels) (string, error) {
	if a := r.chosen[dependencyKey(name, labels)]; a != nil {
		return a.id, nil
	}
	return "", fmt.Errorf("image %s: %w", name, errdefs.ErrNotFound)
}

// recipe is the list of files from ACIs that make the tree of an image.
type recipe struct {
	*resolver
	// files lists the files that each image contributes, beginning with the image itself.
	// An image on which two others depend is listed twice.
	files acirenderer.RenderedACI
}

// recipe returns the recipe for the tree of an ACI.
func (r *ACIs) recipe(ctx context.Context, top *aci) (*recipe, error) {
	found, err := r.resolve(ctx, top)
	if err != nil {
		return nil, err
	}
	id, err := types.NewHash(top.id)
	if err != nil {
		return nil, err
	}
	files, err := acirenderer.GetRenderedACIWithImageID(*id, resolved{found})
	if err != nil {
		return nil, errNotACI(err)
	}
	return &recipe{found, files}, nil
}

// digest returns the digest of the image. For an ACI without dependencies it is appc's
// image id. For an ACI with dependencies it is the digest of a list of all image ids, one
// per line, the highest first.
func (r *recipe) digest() string {
	if len(r.files) == 1 {
		return r.files[0].Key
	}
	h := sha512.New()
	for _, part := range r.files {
		fmt.Fprintln(h, part.Key)
	}
	return digestText(h)
}

// render makes the tree. It begins with the lowest image, and higher images replace its
// files.
func (r *recipe) render(ctx context.Context, to string) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	left := int64(maxImage)
	for i := len(r.files) - 1; i >= 0; i-- {
		part := r.files[i]
		if len(part.FileMap) == 0 {
			continue
		}
		a := r.found[part.Key]
		if err := a.extract(ctx, part.FileMap, root, &left); err != nil {
			return fmt.Errorf("%s: %w", a.path, err)
		}
	}
	return nil
}

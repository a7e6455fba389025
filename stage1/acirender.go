package stage1

import (
	"archive/tar"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/appc/spec/pkg/acirenderer"
	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
)

// ofThisMachine tells whether what an ACI's labels say of os and arch, if they say
// anything, is this machine's.
func ofThisMachine(labels types.Labels) bool {
	system, machine, err := types.ToAppcOSArch(runtime.GOOS, runtime.GOARCH, "")
	if err != nil {
		return true // a machine that appc has no word for
	}
	for name, mine := range map[string]string{"os": system, "arch": machine} {
		if value, ok := labels.Get(name); ok && value != mine {
			return false
		}
	}
	return true
}

// read reads an ACI to its end: its image id, its lengths and its hard links.
func (a *aci) read(ctx context.Context) error {
	if a.id != "" {
		return nil
	}
	f, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h, packed := sha512.New(), sha512.New()
	source := io.TeeReader(f, packed)
	plain, err := decompress(source)
	if err != nil {
		return err
	}
	all := &io.LimitedReader{R: plain, N: maxImage}
	tee := io.TeeReader(all, h)
	links := map[string]string{}
	err = acirenderer.Walk(tar.NewReader(tee), func(hdr *tar.Header) error {
		name, ok := entryName(hdr.Name)
		if !ok && hdr.Typeflag != tar.TypeXGlobalHeader {
			return errNoPlace(hdr.Name)
		}
		if hdr.Typeflag == tar.TypeLink {
			links[name] = path.Clean(hdr.Linkname)
		}
		return ctx.Err()
	})
	if err == nil {
		_, err = io.Copy(io.Discard, tee)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, source) // what a packer may have put behind
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errNotACI(err)
	case all.N <= 0:
		return errTooLong()
	}
	a.id, a.packed, a.size, a.plain, a.links = digestText(h), digestText(packed), st.Size(), maxImage-all.N, links
	return nil
}

func errTooLong() error { return invalid("it unpacks to more than %d bytes", int64(maxImage)) }

// resolved is what acirenderer asks for images. Their keys are their image ids.
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

// ResolveKey implements acirenderer.ACIProvider: an image id may be shortened.
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

// recipe is how the tree of an image is made of ACIs.
type recipe struct {
	*resolver
	// files says what comes from which image, the image itself first. An image that
	// two others depend on is in it twice.
	files acirenderer.RenderedACI
}

// recipe finds out what makes the tree of an ACI.
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

// digest returns appc's image id of an image that is one ACI, and of one that has
// dependencies the digest of the list of their ids, one in a line, as they are
// rendered: the highest first.
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

// render makes the tree, from the lowest image to the highest.
func (r *recipe) render(ctx context.Context, to string) error {
	left := int64(maxImage)
	for i := len(r.files) - 1; i >= 0; i-- {
		part := r.files[i]
		if len(part.FileMap) == 0 {
			continue
		}
		a := r.found[part.Key]
		if err := a.extract(ctx, part.FileMap, to, &left); err != nil {
			return fmt.Errorf("%s: %w", a.path, err)
		}
	}
	return nil
}

// extract unpacks some files of an ACI that was read before, and is still the same.
func (a *aci) extract(ctx context.Context, files map[string]struct{}, to string, left *int64) error {
	f, plain, err := openACI(a.path)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	h := sha512.New()
	tee := io.TeeReader(io.LimitReader(plain, maxImage), h)
	r := tar.NewReader(tee)
	instead := a.relinked(files)
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errNotACI(err)
		}
		if !wanted(hdr, files, instead) {
			continue
		}
		if *left -= hdr.Size; *left < 0 {
			return errTooLong()
		}
		if err := errors.Join(extractEntry(root, hdr, r), ctx.Err()); err != nil {
			return fmt.Errorf("entry %q: %w", hdr.Name, err)
		}
	}
	for target, link := range instead {
		if _, err := root.Lstat(link); err != nil {
			return invalid("entry %q is a hard link to %q, which is not a file of this image", link, target)
		}
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return errNotACI(err)
	}
	if id := digestText(h); id != a.id {
		return fmt.Errorf("it was changed while it was read: %w", errdefs.ErrUnavailable)
	}
	return nil
}

// relinked returns, for each file that is not wanted and has a hard link that is,
// the link that becomes the file instead.
func (a *aci) relinked(files map[string]struct{}) map[string]string {
	instead := map[string]string{}
	for link, target := range a.links {
		_, isWanted := files[link]
		if _, isThere := files[target]; isThere || !isWanted {
			continue
		}
		if other, ok := instead[target]; !ok || link < other {
			instead[target] = link
		}
	}
	return instead
}

// wanted tells whether an entry is to be unpacked, and under which name.
func wanted(hdr *tar.Header, files map[string]struct{}, instead map[string]string) bool {
	name := path.Clean(hdr.Name)
	_, ok := files[name]
	if link := instead[name]; link != "" && hdr.Typeflag == tar.TypeReg {
		hdr.Name = link
		return true
	}
	if !ok || hdr.Typeflag != tar.TypeLink {
		return ok
	}
	if link := instead[path.Clean(hdr.Linkname)]; link != "" {
		hdr.Linkname = link
		return link != name
	}
	return true
}

// verify verifies the signatures of the images, and returns who has signed the highest.
// One that another names by its image id is what that one's signature covers.
func (r *recipe) verify() (signer string, err error) {
	for i, part := range r.files {
		a := r.found[part.Key]
		if i > 0 && r.named[a.id] {
			continue
		}
		by, err := a.verify(r.rules.Verify)
		if err != nil {
			return "", fmt.Errorf("signature of %s: %w", a.path, err)
		}
		if i == 0 {
			signer = by
		}
	}
	return signer, nil
}

// verify verifies the signature of an ACI that was read before, and is still the same.
func (a *aci) verify(by func(file, name string, content io.Reader) (string, error)) (signer string, err error) {
	f, err := os.Open(a.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha512.New()
	if signer, err = by(a.path, a.manifest.Name.String(), io.TeeReader(f, h)); err != nil {
		return "", err
	}
	if digestText(h) != a.packed {
		return "", fmt.Errorf("it was changed while it was read: %w", errdefs.ErrUnavailable)
	}
	return signer, nil
}

// signerOf verifies the signature of an image that is an ACI and has to have one. It
// returns who has signed it and its digest, both empty of any other.
func (r *ACIs) signerOf(ctx context.Context, file string) (digest, signer string, err error) {
	st, err := os.Stat(file)
	if err != nil {
		return "", "", errIncomplete(err)
	}
	if !r.Signed || st.IsDir() {
		return "", "", nil
	}
	isOCI, err := isArchive(file)
	if err != nil || isOCI {
		return "", "", err
	}
	top, err := peekACI(file)
	if err != nil {
		return "", "", err
	}
	made, err := r.recipe(ctx, top)
	if err != nil {
		return "", "", err
	}
	signer, err = made.verify()
	return made.digest(), signer, err
}

// filled is what a directory was filled with.
type filled struct {
	digest string
	isACI  bool
	needs  bool // dependencies
}

// fillACI unpacks an ACI, with what it depends on. allowed is asked for one that has to
// be signed and whose signature cannot be verified here.
func (r *ACIs) fillACI(ctx context.Context, file, to string, allowed func(digest string) error) (filled, error) {
	top, err := peekACI(file)
	if err != nil {
		return filled{}, err
	}
	f := filled{isACI: true, needs: len(top.manifest.Dependencies) > 0}
	if top.isWhole() && !r.Signed {
		f.digest, err = unpack(ctx, file, to)
		return f, err
	}
	made, err := r.recipe(ctx, top)
	if err != nil {
		return f, err
	}
	f.digest = made.digest()
	switch {
	case r.Signed && r.Verify != nil:
		_, err = made.verify()
	case r.Signed:
		err = allowed(f.digest)
	}
	if err != nil {
		return f, err
	}
	if err := os.MkdirAll(filepath.Join(to, "rootfs"), 0o755); err != nil {
		return f, err
	}
	return f, made.render(ctx, to)
}

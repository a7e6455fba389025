package image

import (
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// ACIs are the operator's rules for images that are ACIs. The zero value is the default: no
// further directories, and no signatures.
type ACIs struct {
	// Directories are searched for an ACI's dependencies, in their order and after the
	// directory of the ACI itself. A dependency is a file whose name ends in .aci.
	Directories []string
	// Signed demands a verified signature for each ACI. Verify must verify it now, or an
	// import must have verified it.
	Signed bool
	// Verify verifies the signature of an ACI and returns its signer. file is the path of
	// the ACI and name its appc name. Verify reads content to its end. It is nil in
	// programs that cannot verify signatures.
	Verify func(file, name string, content io.Reader) (signer string, err error)
}

// With returns a store with the same images and other rules.
func (s *Store) With(rules ACIs) *Store {
	other := *s
	other.acis = rules
	return &other
}

// searched returns the directories that are searched for dependencies of the ACI at a path.
func (r *ACIs) searched(file string) []string {
	return append([]string{filepath.Dir(file)}, r.Directories...)
}

// filled describes the image with which a directory was filled.
type filled struct {
	digest string
	isACI  bool
	needs  bool // the image has dependencies
}

// fillACI unpacks an ACI and its dependencies. If the ACI must be signed and this program
// cannot verify signatures, it calls allowed to decide.
func (r *ACIs) fillACI(ctx context.Context, file, to string, allowed func(digest string) error) (filled, error) {
	top, err := peekACI(file)
	if err != nil {
		return filled{}, err
	}
	f := filled{isACI: true, needs: len(top.manifest.Dependencies) > 0}
	if top.isWhole() && !r.Signed {
		root, err := os.OpenRoot(to)
		if err != nil {
			return f, err
		}
		defer root.Close()
		left := int64(maxImage)
		f.digest, err = unpack(ctx, file, root, &left, all)
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
	rootfs := filepath.Join(to, "rootfs")
	if err := errors.Join(os.MkdirAll(rootfs, 0o755), os.Chmod(rootfs, 0o755)); err != nil {
		return f, err
	}
	return f, made.render(ctx, to)
}

// signerOf verifies the signature of an ACI that must be signed. It returns the ACI's
// digest and signer. For any other image it returns empty strings.
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

// verify verifies the signatures of the images, and returns the signer of the highest. If
// an image names another one by its image id, the other one needs no signature, because the
// first one's signature covers it.
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

// verify verifies the signature of an ACI, and returns an error if the ACI has changed since
// read.
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

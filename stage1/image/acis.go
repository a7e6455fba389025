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

// ACIs is what the operator says of images that are ACIs. The zero value is that of
// one who says nothing.
type ACIs struct {
	// Directories are where an ACI's dependencies are looked for, in their order and
	// after the directory that the ACI is in: files whose names end in .aci.
	Directories []string
	// Signed demands that the signature of each ACI was verified, by Verify or by an
	// import.
	Signed bool
	// Verify tells who has signed the ACI at a path, which is called by an appc name,
	// and reads its content to the end. It is nil where signatures cannot be verified.
	Verify func(file, name string, content io.Reader) (signer string, err error)
}

// With returns the same store for images under other rules.
func (s *Store) With(rules ACIs) *Store {
	other := *s
	other.acis = rules
	return &other
}

// searched returns the directories in which dependencies of the ACI at a path are
// looked for.
func (r *ACIs) searched(file string) []string {
	return append([]string{filepath.Dir(file)}, r.Directories...)
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
	rootfs := filepath.Join(to, "rootfs")
	if err := errors.Join(os.MkdirAll(rootfs, 0o755), os.Chmod(rootfs, 0o755)); err != nil {
		return f, err
	}
	return f, made.render(ctx, to)
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

package appimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/containerd"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// Config says where images come from, and where their trees are kept.
type Config struct {
	DataDir string // the data directory, which has the store
	// Address and Namespace are of the containerd whose content store has images that are
	// not named by a path. They default to those of ctr.
	Address, Namespace string
}

// Image is an image whose tree is in the store, or a root file system that is used where it
// is. Its tree is not collected while it is open.
type Image struct {
	// Digest is the digest of the image's manifest, or of the file of an ACI. It is empty for
	// a plain root file system.
	Digest string
	config ocispec.Image // empty for a plain root file system
	app    *appcApp      // of an ACI
	tree   *tree         // nil for a plain root file system
	plain  string        // the plain root file system
	store  *Store
}

// Open returns the image of a reference. It unpacks the image's layers, unless the store has
// its tree. The package comment lists the forms of a reference.
func Open(ctx context.Context, reference string, c Config) (_ *Image, err error) {
	defer prefix(&err, "image %s", reference)
	store, err := OpenStore(c.DataDir)
	if err != nil {
		return nil, err
	}
	s, err := find(ctx, reference, c, store)
	if err != nil {
		return nil, err
	}
	i := &Image{Digest: s.digest, config: s.config, app: s.app, plain: s.plain, store: store}
	if s.plain == "" {
		i.tree, err = store.tree(ctx, s, reference)
	}
	if err = errors.Join(err, s.close()); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// Close allows the image's tree to be collected, unless an app has it. A process that ends
// need not call Close.
func (i *Image) Close() error {
	if i.tree == nil {
		return nil
	}
	return i.tree.lock.Close()
}

// Root returns the directory of the image's root file system, which apps do not change.
func (i *Image) Root() string {
	if i.tree == nil {
		return i.plain
	}
	return i.tree.rootfs()
}

// Plain reports whether the image is a plain root file system, which has no configuration.
func (i *Image) Plain() bool { return i.tree == nil }

// StopSignal returns the name or the number of the signal that ends the image's program, or
// "" if the image does not say.
func (i *Image) StopSignal() string { return i.config.Config.StopSignal }

// Labels returns the labels of the image's configuration, or an ACI's annotations.
func (i *Image) Labels() map[string]string { return i.config.Config.Labels }

// source is an image that was found and not yet unpacked.
type source struct {
	digest string
	config ocispec.Image
	layers []layer // lowest first, as many as config.RootFS.DiffIDs
	app    *appcApp
	plain  string // an absolute path; set alone
	closer func() error
}

func (s *source) close() error {
	if s.closer == nil {
		return nil
	}
	return s.closer()
}

// registries are prefixes by which other tools name an image in a registry.
var registries = []string{"docker://", "http://", "https://", "registry:"}

// find finds the image of a reference.
func find(ctx context.Context, reference string, c Config, store *Store) (*source, error) {
	for _, p := range registries {
		if rest, ok := strings.CutPrefix(reference, p); ok {
			return nil, errRegistry(rest)
		}
	}
	if isPath(reference) {
		return findPath(ctx, reference, store)
	}
	s, err := findInContainerd(ctx, reference, cmp.Or(c.Address, containerd.DefaultAddress), cmp.Or(c.Namespace, containerd.DefaultNamespace))
	if err == nil {
		return s, nil
	}
	if _, statErr := os.Lstat(reference); statErr == nil {
		err = fmt.Errorf("%w; if you mean the one in this directory, say ./%s", err, reference)
	}
	return nil, err
}

func errRegistry(name string) error {
	return fmt.Errorf("images are not pulled from registries: pull it into containerd's store (ctr image pull %s, or nerdctl pull %[1]s), and name it here without the registry's protocol: %w",
		name, errdefs.ErrNotImplemented)
}

func isPath(reference string) bool {
	return strings.HasPrefix(reference, "/") || strings.HasPrefix(reference, "./") || strings.HasPrefix(reference, "../")
}

// findPath finds the image at a path. The words after an @ name one of several images of a
// layout or archive.
func findPath(ctx context.Context, reference string, store *Store) (*source, error) {
	path, name := reference, ""
	st, err := os.Stat(path)
	if at := strings.LastIndexByte(reference, '@'); err != nil && at > 0 {
		path, name = reference[:at], reference[at+1:]
		st, err = os.Stat(path)
	}
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	switch {
	case st.IsDir() && image.IsLayout(path):
		return findInLayout(ctx, path, name)
	case st.IsDir() && name != "":
		return nil, invalid("it is a plain root file system, which has no images with names")
	case st.IsDir():
		return findPlain(path)
	case st.Mode().IsRegular():
		return findInFile(ctx, path, name, store)
	}
	return nil, invalid("it is neither a file nor a directory")
}

// findPlain takes a directory for a root file system.
func findPlain(path string) (*source, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if st, err := os.Lstat(filepath.Join(path, "manifest")); err == nil && st.Mode().IsRegular() {
		if st, err := os.Lstat(filepath.Join(path, "rootfs")); err == nil && st.IsDir() {
			return nil, invalid("it is an unpacked ACI: name the ACI itself, or %s for its root file system alone", filepath.Join(path, "rootfs"))
		}
	}
	return &source{plain: path}, nil
}

// invalid returns an error that unwraps to errdefs.ErrInvalidArgument.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
}

// prefix puts words before an error, if there is one. Callers defer it.
func prefix(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// Inspect reads the image at path without a store. The image may have any form that
// Store.Image accepts. Inspect returns an error if a store with these rules would refuse
// the image. If the rules demand a signature, Verify must be set. Inspect unpacks a packed
// image into a temporary directory, for which it needs root, and removes the directory. So
// the methods of the Image that read its manifest work, but the image cannot be attached.
func (r ACIs) Inspect(ctx context.Context, path string) (i *Image, err error) {
	defer prefix(&err, "stage1 image %s", path)
	if _, err := os.Stat(path); err != nil {
		return nil, errIncomplete(err)
	}
	if IsTree(path) {
		if err := errors.Join(verify(path, path), isWhole(path, filepath.Join(path, "manifest"))); err != nil {
			return nil, err
		}
		digest, err := treeDigest(path)
		if err != nil {
			return nil, err
		}
		return openImage(path, digest)
	}
	tmp, err := os.MkdirTemp("", "rkt-stage1-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	tree := filepath.Join(tmp, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return nil, err
	}
	f, err := r.fill(ctx, path, tree, func(string) error {
		return fmt.Errorf("its signature cannot be verified here: %w", errdefs.ErrPermissionDenied)
	})
	if err == nil {
		err = verify(tree, path)
	}
	if err != nil {
		return nil, err
	}
	if i, err = openImage(tree, f.digest); err != nil {
		return nil, err
	}
	i.isACI = f.isACI
	return i, nil
}

// IsTree reports whether a path is an image directory, as opposed to a packed image.
func IsTree(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir() && !IsLayout(path)
}

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// Inspect looks at the image at path, in any form that Store.Image takes, without a
// store, and returns it if a store would take it. What is packed is unpacked into a
// temporary directory, which takes root and is gone afterwards: the Image can be
// asked what it is, and not be attached.
func Inspect(ctx context.Context, path string) (*Image, error) {
	return ACIs{}.Inspect(ctx, path)
}

// Inspect is the function of that name for ACIs under these rules. A signature that is
// demanded has to be verified by them.
func (r ACIs) Inspect(ctx context.Context, path string) (*Image, error) {
	i, err := r.inspect(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("stage1 image %s: %w", path, err)
	}
	return i, nil
}

func (r *ACIs) inspect(ctx context.Context, path string) (i *Image, err error) {
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

// IsTree tells whether a path is the directory of an image, and not an image packed
// in some way.
func IsTree(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir() && !isLayout(path)
}

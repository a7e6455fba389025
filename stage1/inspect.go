package stage1

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Inspect looks at the image at path, a directory or an ACI, without a store and
// without root, and returns it if a store would take it. What is packed is
// unpacked into a temporary directory, which is gone afterwards: the Image can be
// asked what it is, and not be attached.
func Inspect(ctx context.Context, path string) (*Image, error) {
	i, err := inspect(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("stage1 image %s: %w", path, err)
	}
	return i, nil
}

func inspect(ctx context.Context, path string) (i *Image, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, errIncomplete(err)
	}
	if st.IsDir() {
		if err := verify(path, path); err != nil {
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
	digest, err := unpack(ctx, path, tmp)
	if err == nil {
		err = verify(tmp, path)
	}
	if err != nil {
		return nil, err
	}
	return openImage(tmp, digest)
}

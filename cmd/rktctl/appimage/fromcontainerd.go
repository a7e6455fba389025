package appimage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/containerd"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// findInContainerd finds an image in containerd's content store, by name or by digest.
func findInContainerd(ctx context.Context, reference, address, namespace string) (_ *source, err error) {
	client, err := containerd.Dial(address, namespace)
	if err != nil {
		return nil, err
	}
	var top image.Descriptor
	if strings.HasPrefix(reference, "sha256:") {
		top, err = client.ByDigest(ctx, reference)
	} else {
		top, err = client.Image(ctx, reference)
	}
	var s *source
	if err == nil {
		s, err = findOCI(ctx, client, top)
	}
	if errdefs.IsUnavailable(err) {
		err = fmt.Errorf("an image that is not named by a path, such as ./image.tar, is one in containerd's store, into which ctr image pull and nerdctl pull bring it: %w", err)
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.closer = client.Close
	return s, nil
}

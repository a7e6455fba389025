package cli

import (
	"context"
	"errors"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// probed returns an image with the features that its features/probe reports on this node. It
// makes the call in a store of its own, and so changes nothing on the node. Users other than
// root, and packed images, which Inspect does not keep, get the features of the document.
// The other results are whether the call was made, and its error.
func probed(ctx context.Context, i *image.Image, name string) (_ *image.Image, called bool, err error) {
	if _, err := os.Stat(i.Rootfs()); err != nil || os.Geteuid() != 0 {
		return i, false, nil
	}
	dir, err := os.MkdirTemp("", "rktctl-probe-")
	if err != nil {
		return i, false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := image.OpenStore(dir)
	if err != nil {
		return i, false, err
	}
	children := proc.NewChildren()
	with, calls, err := stage1.Probe(ctx, store, i, name, children)
	return with, len(calls) > 0, errors.Join(err, children.Close(ctx))
}

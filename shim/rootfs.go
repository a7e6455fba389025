package shim

import (
	"context"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/shim/mount"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// rootfs is the root file system of a CreateTaskRequest.
type rootfs struct {
	mounts   []*types.Mount
	children *proc.Children
}

var _ pod.RootFS = (*rootfs)(nil)

func newRootfs(mounts []*types.Mount, children *proc.Children) *rootfs {
	return &rootfs{mounts: mounts, children: children}
}

// Empty reports whether the request has no mounts. The spec's root.path is then the root
// (requirements.md#M5).
func (r *rootfs) Empty() bool { return len(r.mounts) == 0 }

// Mounts lists the mounts of the request. Where a mount refers to an earlier one, a path begins with the number of
// that.
func (r *rootfs) Mounts() ([]abi.Mount, error) {
	mounts, _, err := mount.Steps(r.mounts)
	return mounts, err
}

// Mount mounts everything in order, later mounts at their own targets below target
// (requirements.md#M1). If a mount fails, it undoes those before (requirements.md#M2). The
// mount package itself starts helpers, such as mount.fuse and the processes that keep user
// namespaces for id-mapped layers, and waits for them.
func (r *rootfs) Mount(ctx context.Context, target string) error {
	release := r.children.Expect()
	defer release()
	return mount.All(ctx, r.mounts, target)
}

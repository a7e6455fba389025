package shim

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// rootfs is the root file system of a CreateTaskRequest.
type rootfs struct {
	mounts   []mount.Mount
	children *proc.Children
}

var _ pod.RootFS = (*rootfs)(nil)

func newRootfs(mounts []*types.Mount, children *proc.Children) *rootfs {
	return &rootfs{mounts: mount.FromProto(mounts), children: children}
}

// Empty reports whether the request has no mounts. The spec's root.path is then the root
// (requirements.md#M5).
func (r *rootfs) Empty() bool { return len(r.mounts) == 0 }

// Mount mounts everything in order, later ones below target at their own targets
// (requirements.md#M1), and undoes it if one fails (requirements.md#M2). Helpers such as
// mount.fuse and the holders of user namespaces for id-mapped layers are started by the
// mount package itself, and waited for by it.
func (r *rootfs) Mount(ctx context.Context, target string) error {
	release := r.children.Expect()
	defer release()
	for i := range r.mounts {
		err := context.Cause(ctx)
		if err == nil {
			err = r.mounts[i].Mount(target)
		}
		if err == nil {
			continue
		}
		m := &r.mounts[i]
		err = fmt.Errorf("mount %s of type %s: %w", m.Source, m.Type, err)
		// Unmount the failed one, too: a bind mount may exist although changing its flags
		// has failed.
		return errors.Join(err, mount.UnmountMounts(r.mounts[:i+1], target, 0))
	}
	return nil
}

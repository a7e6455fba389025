package shim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

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

// checkKind refuses a type such as format/mkdir/overlay. The words before the last slash
// are instructions to containerd's mount manager, which carries them out and removes them
// before it sends mounts to a shim.
func checkKind(m *types.Mount) error {
	slash := strings.LastIndexByte(m.Type, '/')
	if slash < 0 {
		return nil
	}
	work, kind := m.Type[:slash], m.Type[slash+1:]
	return fmt.Errorf("mount %s of type %s: containerd's mount manager has to do the work of %q first; this shim mounts %s only: %w",
		m.Source, m.Type, work, kind, errdefs.ErrNotImplemented)
}

// Mounts lists the mounts of the request.
func (r *rootfs) Mounts() ([]abi.Mount, error) {
	var all []abi.Mount
	for _, m := range r.mounts {
		if err := checkKind(m); err != nil {
			return nil, err
		}
		all = append(all, abi.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return all, nil
}

// Mount mounts everything in order, later mounts at their own targets below target
// (requirements.md#M1). If a mount fails, it undoes those before (requirements.md#M2). The
// mount package itself starts helpers, such as mount.fuse and the processes that keep user
// namespaces for id-mapped layers, and waits for them.
func (r *rootfs) Mount(ctx context.Context, target string) error {
	for _, m := range r.mounts {
		if err := checkKind(m); err != nil {
			return err
		}
	}
	release := r.children.Expect()
	defer release()
	for i, m := range r.mounts {
		err := context.Cause(ctx)
		if err == nil {
			err = mount.Mount(m, target)
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("mount %s of type %s: %w", m.Source, m.Type, err)
		// Unmount the failed one, too: a bind mount may exist although changing its flags
		// has failed.
		return errors.Join(err, mount.Unmount(r.mounts[:i+1], target))
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// volume is a block device of an app, with its number in this machine.
type volume struct {
	channel.Volume
	number uint64
}

// makeNodes makes the nodes of an app's volumes. Supervisor and app see them at other paths, by bind
// mounts: a node in the app's root, which is in the share, could not be opened.
func makeNodes(ctx context.Context, list []channel.Volume) (all []volume, err error) {
	for _, v := range list {
		device, err := findDisk(ctx, v.Serial)
		if err != nil {
			return all, err
		}
		var st unix.Stat_t
		if err := unix.Stat(device, &st); err != nil {
			return all, &os.PathError{Op: "look at", Path: device, Err: err}
		}
		if err := os.MkdirAll(filepath.Dir(v.Node), 0o700); err != nil {
			return all, err
		}
		if err := unix.Mknod(v.Node, unix.S_IFBLK, int(st.Rdev)); err != nil {
			return all, &os.PathError{Op: "make", Path: v.Node, Err: err}
		}
		if err := unix.Chmod(v.Node, v.Mode); err != nil {
			return all, &os.PathError{Op: "chmod", Path: v.Node, Err: err}
		}
		if err := os.Lchown(v.Node, int(v.UID), int(v.GID)); err != nil {
			return all, err
		}
		all = append(all, volume{v, st.Rdev})
	}
	return all, nil
}

// removeNodes removes the nodes of an app.
func removeNodes(app string) error {
	if err := os.RemoveAll(filepath.Join(channel.GuestNodes, app)); err != nil {
		return fmt.Errorf("remove the volumes of app %s: %w", app, err)
	}
	return nil
}

// rulesInside translates rules of access. A rule with the number of a block device of the host becomes one
// for each of the app's volumes to which it applies, with the number that the volume has here. Without that,
// it would be for a disk of another app.
func rulesInside(rules []specs.LinuxDeviceCgroup, volumes []volume) (inside []specs.LinuxDeviceCgroup) {
	for _, r := range rules {
		if !channel.NamesBlocks(&r) {
			inside = append(inside, r)
			continue
		}
		for _, v := range volumes {
			if v.NamedBy(&r) {
				one := r
				one.Major, one.Minor = new(int64(unix.Major(v.number))), new(int64(unix.Minor(v.number)))
				inside = append(inside, one)
			}
		}
	}
	return inside
}

package rktabi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

const (
	// machineFile names the cgroup that an rkt image with systemd makes for the pod.
	machineFile = "subcgroup"
	// machineLimit is how long the processes of a pod may take to end after the pod has
	// ended.
	machineLimit = 2 * time.Second
	// machineSlice is the cgroup below which systemd-machined makes the scopes of machines.
	machineSlice = "machine.slice"
)

// Detach undoes Attach, and removes the cgroups that an image with systemd has made for the
// pod. It does so before the pod's directory is removed, because the cgroups' names have
// the pod's UUID.
func (s *adapter) Detach(dir string) error {
	return errors.Join(s.InSpace.Detach(dir), detachMachine(dir))
}

func detachMachine(dir string) error {
	recorded, _, err := abi.ReadBelow(dir, machineFile, unix.PathMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), machineLimit)
	defer cancel()
	return removeMachine(ctx, filepath.Base(dir), strings.TrimSpace(string(recorded)))
}

// machineScope returns the name of the cgroup that rkt's images with systemd make for a
// pod: the scope of the machine rkt-UUID, escaped as systemd does it.
func machineScope(pod string) string {
	return "machine-" + strings.ReplaceAll("rkt-"+pod, "-", `\x2d`) + ".scope"
}

// removeMachine removes the cgroups that rkt's images with systemd make for a pod, in all
// hierarchies, and in a version 2 hierarchy beside version 1. Otherwise only a complete gc
// of the image would remove them. recorded is a path that the image has written to a file
// before it made a cgroup. If the path ends in the name of the pod's cgroup, it is that
// cgroup. Otherwise it is the cgroup from which the pod was started, and is left alone.
//
// removeMachine kills the processes in the cgroups, because the systemd of such a pod may
// run after its systemd-nspawn was killed. It retries until the kernel counts no process,
// or ctx is done.
func removeMachine(ctx context.Context, pod, recorded string) error {
	name := machineScope(pod)
	paths := []string{name, filepath.Join(machineSlice, name)}
	if filepath.Base(recorded) == name {
		paths = append(paths, recorded)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return fmt.Errorf("remove cgroup %s: list the hierarchies: %w", name, err)
	}
	var errs []error
	for _, m := range mounts {
		version := 1
		if m.FSType == "cgroup2" {
			version = 2
		}
		for _, path := range paths {
			errs = append(errs, cgroup.RemoveTree(ctx, version, filepath.Join(m.Mountpoint, filepath.Clean("/"+path))))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", name, err)
	}
	return nil
}

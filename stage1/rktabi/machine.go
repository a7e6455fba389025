package rktabi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// machineFile is where rkt's stage1 images with systemd write down the path of the
// cgroup that they make for the pod.
const machineFile = "subcgroup"

// machineLimit is how long the processes of a pod that has ended may take to go.
const machineLimit = 2 * time.Second

// machineSlice is where systemd-machined keeps the scopes of machines.
const machineSlice = "machine.slice"

// Detach undoes Attach, and removes the cgroups that an image with systemd has made for
// the pod. They are found by the pod's UUID, so they go before the pod's directory.
func (s *adapter) Detach(dir string) error {
	return errors.Join(s.InSpace.Detach(dir), detachMachine(dir))
}

func detachMachine(dir string) error {
	recorded, err := os.ReadFile(filepath.Join(dir, machineFile))
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

// machineScope is the name of the cgroup that rkt's stage1 images with systemd make
// for a pod: that of the machine rkt-UUID, as systemd escapes it.
func machineScope(pod string) string {
	return "machine-" + strings.ReplaceAll("rkt-"+pod, "-", `\x2d`) + ".scope"
}

// removeMachine removes the cgroups that rkt's stage1 images with systemd make for a pod
// in all hierarchies, and with version 2 beside version 1 in that one, too: nobody
// removes them but their gc, and that only if it is called and comes to its end. recorded
// is the path that such an image has written down before it made any. One that does not
// end in the name that the pod's cgroup has is that of what the pod was started from, and
// not the pod's.
//
// Who is in them is killed: systemd in such a pod outlives a systemd-nspawn that was
// killed. While the kernel still counts some, it retries until ctx is done.
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

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// machineSlice is where systemd-machined keeps the scopes of machines.
const machineSlice = "machine.slice"

// machineScope is the name of the cgroup that rkt's stage1 images with systemd make
// for a pod: that of the machine rkt-UUID, as systemd escapes it.
func machineScope(pod string) string {
	return "machine-" + strings.ReplaceAll("rkt-"+pod, "-", `\x2d`) + scopeSuffix
}

// RemoveMachine removes the cgroups that rkt's stage1 images with systemd make for a pod
// in all hierarchies, and with version 2 beside version 1 in that one, too: nobody
// removes them but their gc, and that only if it is called and comes to its end. recorded
// is the path that such an image has written down before it made any. One that does not
// end in the name that the pod's cgroup has is that of what the pod was started from, and
// not the pod's.
//
// Who is in them is killed: systemd in such a pod outlives a systemd-nspawn that was
// killed. While the kernel still counts some, it retries until ctx is done.
func RemoveMachine(ctx context.Context, pod, recorded string) error {
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
		for _, path := range paths {
			errs = append(errs, removeWhole(ctx, m.FSType, filepath.Join(m.Mountpoint, filepath.Clean("/"+path))))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", name, err)
	}
	return nil
}

// removeWhole kills who is in a cgroup of one hierarchy, and removes it.
func removeWhole(ctx context.Context, hierarchy, dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return nil // it is in other hierarchies, if in any
	}
	record := Record{Version: 1, Path: dir, Dirs: map[string]string{"name=" + hierarchy: dir}}
	if hierarchy == "cgroup2" {
		record = Record{Version: 2, Path: dir, Dirs: map[string]string{"": dir}}
	}
	return errors.Join(newGroup(record, nil).Kill(ctx), removeBelow(ctx, dir))
}

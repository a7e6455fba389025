package rktabi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	cgroupRoot  = "/sys/fs/cgroup"
	controllers = "/proc/cgroups"
)

// showV1 changes the pod's view of a machine with cgroup v1, because rkt's images do not
// know everything there. It hides controllers that are in no hierarchy, because the image
// would mount a hierarchy for them on the machine. It also hides a cgroup v2 beside v1,
// because systemd-nspawn would put every pod into its root.
func showV1(dir string) error {
	if onlyV2() {
		return nil
	}
	text, err := os.ReadFile(controllers)
	if err != nil {
		return err
	}
	if shown := mountedControllers(string(text)); shown != string(text) {
		file := filepath.Join(dir, "cgroups")
		if err := os.WriteFile(file, []byte(shown), 0o444); err != nil {
			return err
		}
		if err := unix.Mount(file, controllers, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount on %s: %w", controllers, err)
		}
	}
	return hideV2()
}

// onlyV2 reports whether the machine has cgroup v2 and no v1.
func onlyV2() bool { return isV2(cgroupRoot) }

// isV2 reports whether cgroup v2 is mounted at a path.
func isV2(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// mountedControllers returns the lines of /proc/cgroups, except those of controllers that
// are in no version 1 hierarchy.
func mountedControllers(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) < 2 || fields[1] != "0" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// hideV2 unmounts cgroup v2 on a machine that also has v1.
func hideV2() error {
	beside, err := filepath.Glob(cgroupRoot + "/*")
	if err != nil {
		return err
	}
	for _, path := range beside {
		if !isV2(path) {
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}

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

// showV1 hides from rkt's images, in the pod's space, what they did not know on a
// machine with cgroup v1: controllers that are in no hierarchy, of which they would
// make one, on the machine; and cgroup v2 beside, in whose root systemd-nspawn would
// put every pod. On a machine with cgroup v2 alone there is nothing to hide.
func showV1(dir string) error {
	if onlyV2() {
		return nil
	}
	text, err := os.ReadFile(controllers)
	if err != nil {
		return err
	}
	if shown := mountedControllers(string(text)); shown != string(text) {
		if err := bindText(filepath.Join(dir, "cgroups"), shown, controllers); err != nil {
			return err
		}
	}
	return hideV2()
}

// onlyV2 reports whether the machine has cgroup v2 and no other.
func onlyV2() bool {
	var st unix.Statfs_t
	return unix.Statfs(cgroupRoot, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// mountedControllers returns the lines of a /proc/cgroups without the controllers that
// are in no hierarchy of version 1.
func mountedControllers(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) < 2 || fields[1] != "0" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// bindText shows a text in the place of a file.
func bindText(path, text, over string) error {
	if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
		return err
	}
	if err := unix.Mount(path, over, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount on %s: %w", over, err)
	}
	return nil
}

// hideV2 unmounts what is mounted of cgroup v2 beside v1.
func hideV2() error {
	beside, err := filepath.Glob(cgroupRoot + "/*")
	if err != nil {
		return err
	}
	for _, path := range beside {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}

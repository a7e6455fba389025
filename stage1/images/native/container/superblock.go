package container

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sharedSuperblocks lists the types of which each mount may show the superblock of the host's. A
// bind mount does so, too.
var sharedSuperblocks = []string{
	"bind", "sysfs", "cgroup", "cgroup2", "mqueue", "binfmt_misc", "configfs", "debugfs", "tracefs", "securityfs", "pstore",
	"efivarfs", "devtmpfs",
}

// sharesSuperblock reports whether the host may have mounted the filesystem of an entry as well.
// Options for such a filesystem would be in force on the host.
func (m *mount) sharesSuperblock() bool { return slices.Contains(sharedSuperblocks, m.Type) }

// reconfigured lists the types whose superblock there is only once, and of which some kernels (before
// Linux 6.9) give it the flags of each new mount.
var reconfigured = []string{"debugfs", "tracefs", "pstore", "devtmpfs"}

// remountFlags returns the flags with which an entry remounts the mount of an earlier one. With
// MS_BIND the kernel changes that mount, and not its superblock.
func (m *mount) remountFlags(earlier *mount) uintptr {
	if earlier.sharesSuperblock() {
		return m.Flags | unix.MS_BIND
	}
	return m.Flags
}

// hostCgroup2 returns the options that the superblock of cgroup version 2 has. A mount of it in the
// host's cgroup namespace sets those that are given, and clears all others: without nsdelegate, a
// container could lift its own limits.
func hostCgroup2() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	options, err := cgroup2Options(f)
	if err != nil {
		return "", fmt.Errorf("read the options of cgroup2 in %s: %w", f.Name(), err)
	}
	return options, nil
}

// cgroup2Options returns the options of the superblock of cgroup version 2 from a text of the form
// of mountinfo (proc_pid_mountinfo(5)). Each mount has the same ones.
func cgroup2Options(mountinfo io.Reader) (string, error) {
	for r := bufio.NewReader(mountinfo); ; {
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return "", err
		}
		if _, super, ok := bytes.Cut(line, []byte(" - cgroup2 ")); ok {
			_, options, _ := strings.Cut(strings.TrimSpace(string(super)), " ") // the source
			own := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
				return o == "rw" || o == "ro" || strings.Contains(o, "seclabel") || strings.Contains(o, "context=")
			})
			return strings.Join(own, ","), nil
		}
		if err == io.EOF {
			return "", nil // the host has no mount of it
		}
	}
}

package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// The oldest kernel that is supported: it has cgroup.kill.
const oldestMajor, oldestMinor = 5, 14

func (e *examination) kernel() {
	const area = "kernel"
	var major, minor int
	if _, err := fmt.Sscanf(e.Release, "%d.%d", &major, &minor); err != nil {
		e.found(Warning, area, "uname -r", "the release %q cannot be read", e.Release)
		return
	}
	if major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		e.found(Error, area, fmt.Sprintf("boot a kernel of %d.%d or later", oldestMajor, oldestMinor), "Linux %s is older than %d.%d", e.Release, oldestMajor, oldestMinor)
	} else {
		e.ok(area, "Linux %s", e.Release)
	}
	if fss := strings.Fields(e.read("filesystems")); len(fss) > 0 && !slices.Contains(fss, "overlay") {
		e.found(Warning, area, "modprobe overlay", "the kernel has no overlay file system, which containerd's default snapshotter needs")
	}
	if actions := strings.Fields(e.read("sys/kernel/seccomp/actions_avail")); !slices.Contains(actions, "errno") {
		e.found(Warning, area, "boot a kernel with CONFIG_SECCOMP_FILTER", "the kernel has no seccomp filters: containers with a profile fail, and CRI sets one")
	}
	for _, ns := range []string{"ipc", "mnt", "net", "pid", "uts"} {
		if e.read("sys/user/max_"+ns+"_namespaces") == "0" {
			e.found(Error, area, "sysctl user.max_"+ns+"_namespaces=65536", "the machine allows no %s namespaces", ns)
		}
	}
	if e.read("sys/user/max_user_namespaces") == "0" {
		e.found(Warning, area, "sysctl user.max_user_namespaces=65536", "the machine allows no user namespaces: pods with hostUsers: false fail")
	}
}

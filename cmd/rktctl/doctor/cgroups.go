package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wantedControllers are controllers without which limits that CRI and Docker set are refused.
func wantedControllers() []string { return []string{"cpu", "cpuset", "memory", "pids"} }

// cgroupMounts returns the mount points of the hierarchies: of version 1 by controller, and of
// version 2 as unified.
func (e *examination) cgroupMounts() (v1 map[string]string, unified string) {
	v1 = map[string]string{}
	for line := range strings.Lines(e.read("self/mountinfo")) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			unified = fields[4]
		case "cgroup":
			for _, option := range strings.Split(kind[2], ",") {
				v1[option] = fields[4]
			}
		}
	}
	return v1, unified
}

func (e *examination) cgroups() {
	const area = "cgroups"
	v1, unified := e.cgroupMounts()
	var missing []string
	switch {
	case len(v1) == 0 && unified == "":
		e.found(Error, area, "boot with systemd, or mount -t cgroup2 none /sys/fs/cgroup", "no cgroups are mounted")
		return
	case v1["devices"] == "" && v1["memory"] == "" && unified != "":
		text, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
		if err != nil {
			e.found(Error, area, "", "the controllers of %s cannot be read: %v", unified, err)
			return
		}
		e.ok(area, "version 2 at %s, with %s", unified, strings.TrimSpace(string(text)))
		missing = without(wantedControllers(), strings.Fields(string(text)))
	default:
		kind := "version 1"
		if unified != "" {
			kind = "version 1, and version 2 without controllers at " + unified
		}
		e.ok(area, "%s", kind)
		mounted := []string{}
		for name := range v1 {
			mounted = append(mounted, name)
		}
		missing = without(wantedControllers(), mounted)
		if v1["devices"] == "" {
			e.found(Error, area, "mount -t cgroup -o devices none /sys/fs/cgroup/devices", "the controller devices is not mounted: no pod can be made")
		}
		if v1["freezer"] == "" {
			e.found(Warning, area, "mount -t cgroup -o freezer none /sys/fs/cgroup/freezer", "the controller freezer is not mounted: containers cannot be paused")
		}
	}
	if len(missing) > 0 {
		e.found(Warning, area, "see the kernel's command line (cgroup_enable=, cgroup_disable=)", "without the controllers %s: containers with such limits fail", strings.Join(missing, ", "))
	}
}

// without returns the words of a list that another one does not have.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

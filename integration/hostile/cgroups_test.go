package hostile

import (
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// CVE-2023-25809: with /sys bound from the host and without a cgroup namespace, the hierarchies
// below /sys were writable.
func TestAContainerChangesNoCgroup(t *testing.T) {
	try := func(opts ...oci.SpecOpts) func(*lab) {
		return func(l *lab) { l.once(func() { _ = l.victim(looking(opts...)) }) }
	}
	hostCgroups := oci.WithHostNamespace(specs.CgroupNamespace)
	cgroups := oci.WithMounts([]specs.Mount{mount("cgroup", "cgroup", "/sys/fs/cgroup", "ro", "nosuid", "noexec", "nodev")})
	const rootless = "the hole is that of a rootless runc on cgroup v2; here runc is root's"
	// A recursive bind mount stays as writable as on the host, as the spec demands.
	boundSys := oci.Compose(oci.WithoutMounts("/sys"), first(mount("bind", "/sys", "/sys", "rbind", "ro")))
	hostile(t, attack{classes: "CVE-2023-25809", name: "write to cgroups, and to devices that they deny", modes: []mode{
		{name: "default", try: try(cgroups), unproved: rootless},
		{name: "host's cgroup namespace", try: try(cgroups, hostCgroups), unproved: rootless},
		{name: "user namespace", try: try(cgroups, userNamespace()), users: true, unproved: rootless},
		{name: "user namespace, host's cgroup namespace", try: try(cgroups, userNamespace(), hostCgroups), users: true, unproved: rootless},
		{name: "user namespace, /sys bound from the host", try: try(boundSys, cgroups, userNamespace(), hostCgroups), users: true, unproved: rootless},
		{name: "all of /dev in a volume", try: func(l *lab) {
			l.once(func() { _ = l.victim(looking(oci.WithoutMounts("/dev"), first(bind("/dev", "/dev")))) })
		}, unproved: "no release is known that forgot its rules for devices"},
	}})
}

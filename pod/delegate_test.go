package pod

import (
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestACgroupIsHandedToWhoSeesItAsTheRootAndMayWrite(t *testing.T) {
	mount := func(kind string, options ...string) []specs.Mount {
		return []specs.Mount{{Destination: "/proc", Type: "proc"}, {Destination: "/sys/fs/cgroup", Type: kind, Options: options}}
	}
	own := []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	mapped := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 200000, Size: 1000}, {ContainerID: 1000, HostID: 5000, Size: 1}}
	process := func(uid uint32) *specs.Process { return &specs.Process{User: specs.User{UID: uid}} }
	for _, c := range []struct {
		name string
		spec specs.Spec
		uid  int
		ok   bool
	}{
		{"root", specs.Spec{Process: process(0), Mounts: mount("cgroup", "nosuid", "rw"), Linux: &specs.Linux{Namespaces: own}}, 0, true},
		{"a user", specs.Spec{Process: process(7), Mounts: mount("cgroup2"), Linux: &specs.Linux{Namespaces: own}}, 7, true},
		{"root of a user namespace", specs.Spec{Process: process(0), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own, UIDMappings: mapped}}, 200000, true},
		{"a user of a second mapping", specs.Spec{Process: process(1000), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own, UIDMappings: mapped}}, 5000, true},
		{"a user that nobody is", specs.Spec{Process: process(1001), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own, UIDMappings: mapped}}, 0, false},
		{"read-only", specs.Spec{Process: process(7), Mounts: mount("cgroup", "nosuid", "ro"), Linux: &specs.Linux{Namespaces: own}}, 0, false},
		{"no mount", specs.Spec{Process: process(7), Linux: &specs.Linux{Namespaces: own}}, 0, false},
		{"the host's cgroup namespace", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{}}, 0, false},
		{"another's cgroup namespace", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.CgroupNamespace, Path: "/proc/1/ns/cgroup"}},
		}}, 0, false},
		{"no process", specs.Spec{Mounts: mount("cgroup", "rw"), Linux: &specs.Linux{Namespaces: own}}, 0, false},
		{"nothing of Linux", specs.Spec{Process: process(7), Mounts: mount("cgroup", "rw")}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if uid, ok := cgroupOwner(&c.spec); uid != c.uid || ok != c.ok {
				t.Errorf("%d, %v; want %d, %v", uid, ok, c.uid, c.ok)
			}
		})
	}
}

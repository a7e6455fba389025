package container

import (
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestTheOptionsOfTheHostsCgroup2AreThoseOfItsSuperblock(t *testing.T) {
	const before = "22 1 0:20 / /proc rw,nosuid - proc proc rw\n23 1 0:21 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - "
	for mountinfo, want := range map[string]string{
		before + "cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n":                         "nsdelegate,memory_recursiveprot",
		before + "cgroup2 cgroup rw,seclabel,nsdelegate,favordynmods,context=a\n9 8 - x x rw\n": "nsdelegate,favordynmods",
		before + "cgroup2 none ro":               "",
		before + "cgroup cgroup rw,nsdelegate\n": "",
		before + "cgroup2 " + strings.Repeat("s", 9000) + " rw,nsdelegate\n" + before + "x x rw\n": "nsdelegate",
		"": "",
	} {
		if got, err := cgroup2Options(strings.NewReader(mountinfo)); err != nil || got != want {
			t.Errorf("%.150q: %q, %v; want %q", mountinfo, got, err, want)
		}
	}
}

// A mount in the host's cgroup namespace replaces the options of the host's.
func TestAMountOfCgroup2WithoutACgroupNamespaceKeepsTheOptionsOfTheHosts(t *testing.T) {
	for _, c := range []struct {
		kind         string
		newNamespace bool
		want         string
	}{
		{"cgroup2", false, "a,b"},
		{"cgroup", false, "a,b"}, // on a host with version 2
		{"cgroup2", true, ""},
		{"cgroup", true, ""},
	} {
		m := &mountPlanner{spec: &specs.Spec{Linux: &specs.Linux{}}, config: &config{CgroupNamespace: c.newNamespace}, cgroup2: true,
			request: &abi.Request{}, options: newOptionParser(), hostCgroup2: func() (string, error) { return "a,b", nil }}
		planned, err := m.mount(specs.Mount{Destination: "/sys/fs/cgroup", Type: c.kind, Source: "cgroup"})
		if err != nil || planned.Type != "cgroup2" || planned.Data != c.want {
			t.Errorf("%+v: %+v, %v", c, planned, err)
		}
	}
}

// Without MS_BIND the kernel would change the superblock, which the host has mounted, too.
func TestARemountLeavesSharedSuperblocksAlone(t *testing.T) {
	again := mount{Type: "none", Flags: unix.MS_REMOUNT | unix.MS_RDONLY}
	for _, kind := range []string{"bind", "sysfs", "cgroup2", "mqueue", "debugfs"} {
		if again.remountFlags(&mount{Type: kind}) != again.Flags|unix.MS_BIND {
			t.Errorf("a remount of %s changes its superblock", kind)
		}
	}
	for _, kind := range []string{"tmpfs", "proc", "devpts", "overlay"} {
		if again.remountFlags(&mount{Type: kind}) != again.Flags {
			t.Errorf("a remount of %s does not change it", kind)
		}
	}
}

// On a host with version 2 and systemd, these are nsdelegate and memory_recursiveprot.
func TestAContainerThatMountsCgroup2LeavesTheOptionsOfTheHosts(t *testing.T) {
	before, err := hostCgroup2()
	must(t, err)
	b := newBox(t).sh("cat /proc/self/mountinfo").mount(specs.Mount{Destination: "/cgroups", Type: "cgroup2", Source: "cgroup", Options: []string{"ro", "nosuid"}})
	if host, err := os.ReadFile("/proc/self/mountinfo"); err != nil || !strings.Contains(string(host), " - cgroup2 ") {
		t.Skip("the host has no cgroup2: ", err)
	}
	contains(t, lineOf(t, b.ok(), "/cgroups"), " ro,nosuid")
	after, err := hostCgroup2()
	must(t, err)
	if after != before {
		t.Errorf("the host's cgroup2 had the options %q, and has %q", before, after)
	}
	t.Logf("they are %q", after)
}

package container

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyRareExecsNeedInit(t *testing.T) {
	one := 1
	for what, change := range map[string]func(*config){
		"":                                 func(*config) {},
		"an app without a mount namespace": func(c *config) { c.Chroot = firstFile },
		"an SELinux label":                 func(c *config) { c.Process.SELinux = "x" },
		"a personality":                    func(c *config) { c.Personality = new(uint32) },
		"a memory policy":                  func(c *config) { c.MemoryPolicy = &memoryPolicy{} },
		"a scheduling policy":              func(c *config) { c.Process.Scheduler = &unix.SchedAttr{} },
		"an I/O priority":                  func(c *config) { c.Process.IOPriority = &one },
		"a CPU affinity":                   func(c *config) { c.Process.FinalCPUs = []int{0} },
		"a seccomp agent":                  func(c *config) { c.SeccompFlags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER },
	} {
		c := &config{Exec: true, Process: process{Args: []string{"x"}}}
		change(c)
		program, why := (&Prepared{config: c}).Program()
		if why != what || (program == nil) != (what != "") {
			t.Errorf("%s: %v, %q", what, program, why)
		}
	}
}

func TestOnlyRareAppsNeedInit(t *testing.T) {
	for what, change := range map[string]func(*config){
		"":                              func(*config) {},
		"a user namespace":              func(c *config) { c.UserNamespace = true },
		"no mount namespace of its own": func(c *config) { c.Rootfs.Chroot = true },
		"no pivot_root":                 func(c *config) { c.Rootfs.NoPivotRoot = true },
		"a terminal":                    func(c *config) { c.Terminal = true },
		"hooks":                         func(c *config) { c.RuntimeHooks = true },
		"network devices":               func(c *config) { c.NetDevices = true },
		"options of a procfs":           func(c *config) { c.Mounts[0].Data = `a\,b` },
		"a path of the process's own":   func(c *config) { c.Masked = []string{"/proc/self/environ"} },
		"an SELinux label":              func(c *config) { c.Process.SELinux = "x" }, // as of an exec
	} {
		c := &config{Rootfs: &rootfs{}, CgroupNamespace: true, Process: process{Args: []string{"x"}}, Mounts: []mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Data: "hidepid=2"},
			{Destination: "/proc", Type: "proc", Flags: unix.MS_REMOUNT},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		}}
		change(c)
		program, why := (&Prepared{config: c}).First()
		if why != what || (program == nil) != (what != "") {
			t.Errorf("%s: %v, %q", what, program, why)
		}
		if what == "" && (program.First.Procfs != 1 || !program.First.CgroupNamespace) {
			t.Errorf("the first process: %+v", program.First)
		}
	}
}

func TestAProgramIsLookedForInItsOwnPath(t *testing.T) {
	for _, c := range []struct {
		name, path string
		want       []string
	}{
		{"x", "/a::/b", []string{"/a/x", "./x", "/b/x"}},
		{"x", "", nil},
		{"./x", "/a", []string{"./x"}},
		{"/x", "/a", []string{"/x"}},
	} {
		p := &Prepared{config: &config{Process: process{Args: []string{c.name}, Path: c.path}}}
		if program, _ := p.Program(); !slices.Equal(program.Paths, c.want) {
			t.Errorf("%s in %q: %q, want %q", c.name, c.path, program.Paths, c.want)
		}
	}
}

// The file of the host's procfs, through which a profile is set, is not for init.
func TestAnAppArmorProfileIsSetInTheHostsProc(t *testing.T) {
	p := &Prepared{config: &config{Process: process{Args: []string{"x"}, AppArmor: "some"}}}
	program, why := p.Program()
	if why != "" {
		t.Fatal(why)
	}
	l := program.Label
	host, err := os.Stat("/proc")
	must(t, err)
	opened, err := l.Proc.Stat()
	must(t, err)
	if l.Value != "exec some" || strings.Join(l.Names[:], " ") != "attr/apparmor/exec attr/exec" || !os.SameFile(host, opened) || len(p.Files) != 0 {
		t.Errorf("the label is %+v, the files of init are %v", l, p.Files)
	}
	p.Close()
	if _, err := l.Proc.Stat(); err == nil {
		t.Error("the procfs is open for ever")
	}
}

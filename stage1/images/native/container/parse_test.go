package container

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

func TestMountOptionsAreParsed(t *testing.T) {
	for _, c := range []struct {
		options string
		want    mountOptions
	}{
		{"", mountOptions{}},
		{"defaults", mountOptions{}},
		{"ro", mountOptions{flags: unix.MS_RDONLY}},
		{"ro,rw", mountOptions{cleared: unix.MS_RDONLY}},
		{"rw,ro", mountOptions{flags: unix.MS_RDONLY}},
		{"rbind,nosuid,dev", mountOptions{flags: unix.MS_BIND | unix.MS_REC | unix.MS_NOSUID, cleared: unix.MS_NODEV}},
		{"slave,rshared", mountOptions{propagation: []uintptr{unix.MS_SLAVE, unix.MS_SHARED | unix.MS_REC}}},
		{"rro,rnodev", mountOptions{recSet: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV}},
		{"rro,rrw", mountOptions{recClear: unix.MOUNT_ATTR_RDONLY}},
		{"rnoatime", mountOptions{recSet: unix.MOUNT_ATTR_NOATIME, recClear: unix.MOUNT_ATTR__ATIME}},
		{"rnoatime,rstrictatime", mountOptions{recSet: unix.MOUNT_ATTR_STRICTATIME, recClear: unix.MOUNT_ATTR__ATIME}},
		{"rnoatime,rrelatime", mountOptions{recClear: unix.MOUNT_ATTR__ATIME}},
		{"rnoatime,ratime", mountOptions{recClear: unix.MOUNT_ATTR__ATIME}},
		{"tmpcopyup,ridmap", mountOptions{copyUp: true, idmap: true, ridmap: true}},
		{"size=1m,mode=755,nosuid", mountOptions{flags: unix.MS_NOSUID, data: []string{"size=1m", "mode=755"}}},
	} {
		got := newOptionParser().parse(strings.Split(c.options, ","))
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: got %+v, want %+v", c.options, got, c.want)
		}
	}
}

func TestFlagsOfABindMountBecomeAttributes(t *testing.T) {
	const others = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSYMFOLLOW
	for _, c := range []struct {
		options             string
		set, clear, gentler uint64
		changes             bool
	}{
		{"rbind", 0, 0, 0, false},
		{"rbind,ro", unix.MOUNT_ATTR_RDONLY, others, 0, true},
		{"bind,rw", 0, plainAttrs, unix.MOUNT_ATTR_RDONLY, true},
		{"bind,ro,noatime", unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOATIME, others | unix.MOUNT_ATTR__ATIME, unix.MOUNT_ATTR__ATIME, true},
		{"bind,atime", 0, plainAttrs | unix.MOUNT_ATTR__ATIME, unix.MOUNT_ATTR__ATIME, true},
		{"bind,sync", 0, plainAttrs, 0, true},
	} {
		o := newOptionParser().parse(strings.Split(c.options, ","))
		attr, gentle, changes := o.bindAttr()
		if changes != c.changes || attr.Attr_set != c.set || attr.Attr_clr != c.clear || gentle.Attr_clr != c.gentler || gentle.Attr_set != c.set {
			t.Errorf("%q: %+v, %+v, %v", c.options, attr, gentle, changes)
		}
	}
}

func TestSysctlsAreTheAppsOwn(t *testing.T) {
	all := namespaces{
		specs.NetworkNamespace: {Type: specs.NetworkNamespace},
		specs.IPCNamespace:     {Type: specs.IPCNamespace},
		specs.UTSNamespace:     {Type: specs.UTSNamespace},
		specs.UserNamespace:    {Type: specs.UserNamespace},
	}
	hosts := namespaces{specs.NetworkNamespace: {Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"}}
	for _, c := range []struct {
		key, path, err string
		ns             namespaces
	}{
		{key: "net.ipv4.ip_forward", path: "net/ipv4/ip_forward", ns: all},
		{key: "net/ipv4/conf/eth0.1/forwarding", path: "net/ipv4/conf/eth0.1/forwarding", ns: all},
		{key: "net.ipv4.conf.eth0/1.forwarding", path: "net/ipv4/conf/eth0.1/forwarding", ns: all},
		{key: "kernel.shm_rmid_forced", path: "kernel/shm_rmid_forced", ns: all},
		{key: "fs.mqueue.msg_max", path: "fs/mqueue/msg_max", ns: all},
		{key: "kernel.domainname", path: "kernel/domainname", ns: all},
		{key: "user.max_user_namespaces", path: "user/max_user_namespaces", ns: all},
		{key: "user/max_inotify_watches", path: "user/max_inotify_watches", ns: all},
		{key: "user.max_user_namespaces", err: "host's user namespace", ns: namespaces{}},
		{key: "net.ipv4.ip_forward", err: `"net.ipv4.ip_forward" is not allowed in the host's network namespace`, ns: namespaces{}},
		{key: "net.ipv4.ip_forward", err: "host's network namespace", ns: hosts},
		{key: "kernel.sem", err: "host's IPC namespace", ns: hosts},
		{key: "kernel.hostname", err: "conflicts with the field hostname", ns: all},
		{key: "kernel.panic", err: "not in a namespace of the app's", ns: all},
		{key: "vm.swappiness", err: "not in a namespace of the app's", ns: all},
		{key: "net/../kernel/panic", err: "is not below /proc/sys", ns: all},
	} {
		spec := &specs.Spec{Hostname: "h", Linux: &specs.Linux{Sysctl: map[string]string{c.key: "1"}}}
		paths, err := parseSysctl(spec, c.ns)
		switch {
		case c.err != "":
			if err == nil {
				t.Errorf("%s: no error", c.key)
				continue
			}
			contains(t, err.Error(), c.err)
		case err != nil:
			t.Errorf("%s: %v", c.key, err)
		case paths[0] != sysctl{c.path, "1"}:
			t.Errorf("%s: %v", c.key, paths)
		}
	}
}

func TestSpecsThatMakeNoSenseAreErrors(t *testing.T) {
	mappings := []specs.LinuxIDMapping{{HostID: 1, Size: 1}}
	zero := 0
	for _, c := range []struct {
		change func(*specs.Spec)
		want   string
	}{
		{func(s *specs.Spec) { s.Version = "2.0.0" }, `ociVersion: "2.0.0"`},
		{func(s *specs.Spec) { s.Process = nil }, "no process"},
		{func(s *specs.Spec) { s.Linux = nil }, "no linux section"},
		{func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[:1] }, "mounts: not supported without a mount namespace"},
		{func(s *specs.Spec) { s.Linux.Namespaces = append(s.Linux.Namespaces, s.Linux.Namespaces[0]) }, `type "pid" appears twice`},
		{func(s *specs.Spec) { s.Linux.Namespaces[0].Type = "tame" }, `linux.namespaces: type "tame" is not supported`},
		{func(s *specs.Spec) {
			s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: 1}}
		}, "linux.timeOffsets: offsets without a new time namespace"},
		{func(s *specs.Spec) {
			s.Linux.Namespaces[0].Type = specs.TimeNamespace
			s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"realtime": {Secs: 1}}
		}, `linux.timeOffsets: clock "realtime" is not known`},
		{func(s *specs.Spec) { s.Linux.UIDMappings = mappings }, "mappings without a user namespace"},
		{func(s *specs.Spec) { s.Linux.Namespaces[0].Type = specs.UserNamespace }, "needs mappings"},
		{func(s *specs.Spec) { s.Hostname = "x"; s.Linux.Namespaces[3].Type = specs.CgroupNamespace }, "hostname: cannot be set without a UTS namespace"},
		{func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "x"}}} }, `hooks.createRuntime[0]: path "x" is not absolute`},
		{func(s *specs.Spec) {
			s.Hooks = &specs.Hooks{StartContainer: []specs.Hook{{Path: "/x", Timeout: &zero}}}
		}, "timeout 0 is not positive"},
		{func(s *specs.Spec) { s.Process.Args = nil }, "no program"},
		{func(s *specs.Spec) { s.Process.Cwd = "" }, `"" is not an absolute path`},
		{func(s *specs.Spec) { s.Process.Env = []string{"NOVALUE"} }, `"NOVALUE" is not NAME=VALUE`},
		{func(s *specs.Spec) { s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_X"}} }, `"RLIMIT_X" is not known`},
		{func(s *specs.Spec) {
			s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CPU"}, {Type: "RLIMIT_CPU"}}
		}, "appears twice"},
		{func(s *specs.Spec) { s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CPU", Soft: 2, Hard: 1}} }, "above the hard one"},
		{func(s *specs.Spec) { s.Process.Scheduler = &specs.Scheduler{Policy: "SCHED_ISO"} }, `process.scheduler.policy: "SCHED_ISO"`},
		{func(s *specs.Spec) { s.Process.IOPriority = &specs.LinuxIOPriority{Class: "x"} }, `process.ioPriority.class: "x"`},
		{func(s *specs.Spec) {
			s.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_RT, Priority: 8}
		}, "8 is not within 0 to 7"},
		{func(s *specs.Spec) { s.Linux.RootfsPropagation = "x" }, `linux.rootfsPropagation: "x"`},
		{func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/x", Type: "x"}} }, `linux.devices[0]: type: "x"`},
		{func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActNotify} }, "SCMP_ACT_NOTIFY"},
		{func(s *specs.Spec) { s.Mounts = []specs.Mount{{Destination: "/x"}} }, "the mount has no type"},
		{func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/x", Type: "proc", Options: []string{"tmpcopyup"}}}
		}, "mounts[0]: options: tmpcopyup is for tmpfs"},
		{func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
			s.Linux.UIDMappings, s.Linux.GIDMappings = mappings, mappings
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/zero", Type: "c", Major: 1, Minor: 3}}
		}, "device /dev/zero: the host has another file there"},
		{func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/x", Type: "tmpfs", UIDMappings: mappings}}
		}, "only bind mounts can be id-mapped"},
		{func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/x", Source: "/", Options: []string{"bind"}, UIDMappings: mappings}}
		}, "uidMappings and gidMappings go together"},
		{func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/x", Source: "/", Options: []string{"bind", "idmap"}}}
		}, "needs mappings, its own or the app's"},
	} {
		spec := defaultSpec([]string{"true"})
		c.change(spec)
		p, err := PrepareApp(AppRequest{Request: abi.Request{Rootfs: "/rootfs"}, Spec: spec})
		if err == nil {
			p.Close()
			t.Errorf("no error, want %q", c.want)
			continue
		}
		contains(t, err.Error(), c.want)
	}
}

// Every other file system refuses a word that it does not know.
func TestAWordThatIsNoOptionOfACgroupMountIsRefused(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("with version 2 the kernel refuses it")
	}
	spec := defaultSpec([]string{"true"})
	spec.Mounts = []specs.Mount{{Destination: "/x", Type: "cgroup", Options: []string{"nosuid", "readonly"}}}
	p, err := PrepareApp(AppRequest{Request: abi.Request{Rootfs: "/rootfs"}, Spec: spec})
	if err == nil {
		p.Close()
		t.Fatal("no error")
	}
	contains(t, err.Error(), `mounts[0]: options: a mount of cgroup version 1 has no option "readonly"`)
}

func TestAFailedPreparationLeavesNoDescriptorOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it copies mounts")
	}
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(entries)
	}
	spec := defaultSpec([]string{"true"})
	spec.Mounts = []specs.Mount{bindOf("/etc", "/a"), bindOf("/usr", "/b"), bindOf("/absent", "/c")}
	before := open()
	if _, err := PrepareApp(AppRequest{Request: abi.Request{Rootfs: "/rootfs"}, Spec: spec}); err == nil {
		t.Fatal("no error")
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestSecurityModulesThatTheHostLacksAreErrors(t *testing.T) {
	for _, c := range []struct {
		set     func(*specs.Spec)
		want    string
		enabled bool
	}{
		{func(s *specs.Spec) { s.Process.ApparmorProfile = "p" }, `apparmor profile "p"`, appArmorEnabled()},
		{func(s *specs.Spec) { s.Process.SelinuxLabel = "l" }, `selinux label "l"`, selinuxEnabled()},
		{func(s *specs.Spec) { s.Linux.MountLabel = "l" }, `linux.mountLabel "l"`, selinuxEnabled()},
	} {
		if c.enabled {
			continue
		}
		spec := defaultSpec([]string{"true"})
		spec.Mounts = nil
		c.set(spec)
		_, err := PrepareApp(AppRequest{Request: abi.Request{Rootfs: "/rootfs"}, Spec: spec})
		if err == nil {
			t.Fatalf("%s: no error", c.want)
		}
		contains(t, err.Error(), c.want)
		// An exec inherits the app's.
		if _, err := PrepareExec(ExecRequest{Process: defaultSpec([]string{"x"}).Process, App: spec}); err == nil {
			t.Errorf("%s: an exec does not have it", c.want)
		}
	}
}

func TestCapabilitiesAreTheKernelsNumbers(t *testing.T) {
	names := abi.Capabilities()
	for number, name := range map[int]string{unix.CAP_CHOWN: "CAP_CHOWN", unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN", unix.CAP_SETFCAP: "CAP_SETFCAP", unix.CAP_CHECKPOINT_RESTORE: "CAP_CHECKPOINT_RESTORE"} {
		if names[number] != name {
			t.Errorf("capability %d is %s, want %s", number, names[number], name)
		}
	}
	c := parseCapabilities(&specs.LinuxCapabilities{Ambient: []string{"CAP_CHOWN", "cap_kill", "CAP_INVENTED", "ALL"}})
	if c.Ambient != 1<<unix.CAP_CHOWN|1<<unix.CAP_KILL || c.Permitted != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestCPULists(t *testing.T) {
	for list, want := range map[string][]int{"": nil, "0": {0}, "0-2,7": {0, 1, 2, 7}, "3, 5": {3, 5}} {
		if got, err := parseNumbers(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	for _, list := range []string{"x", "3-1", "1-", "-1", "0,,1", "1024", "0-99999999999"} {
		if got, err := parseNumbers(list); err == nil {
			t.Errorf("%q: %v and no error", list, got)
		}
	}
}

func TestAnExecHasTheAffinityThatItsAppSaysOfExecs(t *testing.T) {
	app := defaultSpec([]string{"x"})
	app.Process.ExecCPUAffinity = &specs.CPUAffinity{Initial: "0", Final: "0-1"}
	var r process
	must(t, r.affinity(&specs.Process{}, app.Process))
	if !slices.Equal(r.InitialCPUs, []int{0}) || !slices.Equal(r.FinalCPUs, []int{0, 1}) {
		t.Errorf("got %+v", r)
	}
}

func TestAnExecHasTheCapabilitiesAndTheOOMScoreOfItsAppUnlessItSaysOtherwise(t *testing.T) {
	score, other := 333, 7
	app := defaultSpec([]string{"x"})
	app.Process.Capabilities = &specs.LinuxCapabilities{Effective: []string{"CAP_CHOWN"}}
	app.Process.OOMScoreAdj = &score
	for name, test := range map[string]struct {
		change func(*specs.Process)
		caps   uint64
		score  int
	}{
		"nothing": {func(*specs.Process) {}, 1, score},
		"none":    {func(p *specs.Process) { p.Capabilities = &specs.LinuxCapabilities{} }, 0, score},
		"its own": {func(p *specs.Process) { p.OOMScoreAdj = &other }, 1, other},
	} {
		exec := &specs.Process{Args: []string{"x"}, Cwd: "/"}
		test.change(exec)
		p, err := PrepareExec(ExecRequest{Process: exec, App: app})
		if err != nil {
			t.Fatal(err)
		}
		r := &p.config.Process
		if r.Caps.Effective != test.caps || r.OOMScoreAdj == nil || *r.OOMScoreAdj != test.score {
			t.Errorf("%s: capabilities %b, OOM score %v", name, r.Caps.Effective, r.OOMScoreAdj)
		}
		p.Close()
	}
}

func TestHierarchiesAreMountedByTheirControllers(t *testing.T) {
	for name, want := range map[string]string{
		"cpu,cpuacct": "cpu,cpuacct", "net_cls,net_prio": "net_cls,net_prio", "memory": "memory",
		"systemd": "none,name=systemd", "elogind": "none,name=elogind",
	} {
		if got := hierarchyData(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	err := outermost(errors.Join(errors.New("mount x"), refuse("options", "%q", "y")))
	var e *serve.Failure
	if !errors.As(err, &e) || e.Code != abi.ExitNotImplemented || !strings.Contains(e.Text, "mount x") {
		t.Errorf("got %#v", err)
	}
	if serve.CodeOf(errors.New("x")) != 1 || serve.CodeOf(err) != abi.ExitNotImplemented {
		t.Error("wrong codes")
	}
}

func TestAUserAfterALongLineHasItsHome(t *testing.T) {
	passwd := "#" + strings.Repeat("a", 70_000) + "\nuser:x:5:5:g:/h:s\n"
	if home := findHome(strings.NewReader(passwd), 5); home != "/h" {
		t.Errorf("home is %q", home)
	}
}

func FuzzHomeOfAUser(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\n", uint32(0))
	f.Add("# comment\n+::::::\nuser:x:1000:1:::\n", uint32(1000))
	f.Add(strings.Repeat("a", 70000)+":x:5:5:g:/h:s", uint32(5))
	f.Fuzz(func(t *testing.T, passwd string, uid uint32) {
		home := findHome(strings.NewReader(passwd), uid)
		if home != "" && !strings.Contains(passwd, home) {
			t.Errorf("%q is not in the file", home)
		}
	})
}

func FuzzSysctlKeysStayBelowTheirArea(f *testing.F) {
	for _, key := range []string{"net.ipv4.ip_forward", "net/../x", "net...x", "net./../x", "kernel/sem", ""} {
		f.Add(key)
	}
	ns := namespaces{specs.NetworkNamespace: {Type: specs.NetworkNamespace}}
	f.Fuzz(func(t *testing.T, key string) {
		p := sysctlPath(key)
		if checkSysctl(p, "", ns) != nil {
			return
		}
		if !strings.HasPrefix(p, "net/") && p != "net" || slices.Contains(strings.Split(p, "/"), "..") {
			t.Errorf("%q was taken as %q", key, p)
		}
	})
}

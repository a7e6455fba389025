package appc

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// base returns a spec that appc can express, after a change of it.
func base(change func(*specs.Spec)) *specs.Spec {
	s := &specs.Spec{
		Process: &specs.Process{Args: []string{"/bin/true"}, Cwd: "/", Env: []string{"PATH=/bin"}},
		Root:    &specs.Root{Path: "rootfs"}, Linux: &specs.Linux{},
	}
	if change != nil {
		change(s)
	}
	return s
}

// isolators maps the names of an app's isolators to their values.
func isolators(a *App) map[string]string {
	m := map[string]string{}
	for _, i := range a.App.Isolators {
		m[i.Name.String()] = string(*i.ValueRaw)
	}
	return m
}

func errno(n uint) *uint { return &n }

func TestWhatIsSaidInIsolators(t *testing.T) { // rkt-abi.md, section 10; traps 6 and 12
	limit, quota, shares, score := int64(64<<20), int64(50000), uint64(1), -7
	for name, c := range map[string]struct {
		change func(*specs.Spec)
		want   map[string]string
	}{
		"no seccomp": {nil, map[string]string{"os/linux/seccomp-retain-set": `@appc.io/all`}},
		"an allow list": {
			func(s *specs.Spec) {
				s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{{Names: []string{"write", "read"}, Action: specs.ActAllow}}}
			}, map[string]string{"os/linux/seccomp-retain-set": `{"set":["read","write"],"errno":"EPERM"}`},
		},
		"an allow list that kills": {
			func(s *specs.Spec) {
				s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActKillProcess, Syscalls: []specs.LinuxSyscall{{Names: []string{"read"}, Action: specs.ActAllow}}}
			}, map[string]string{"os/linux/seccomp-retain-set": `{"set":["read"]`},
		},
		"a deny list": {
			func(s *specs.Spec) {
				s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{"mount"}, Action: specs.ActErrno, ErrnoRet: errno(38)}}}
			}, map[string]string{"os/linux/seccomp-remove-set": `{"set":["mount"],"errno":"ENOSYS"}`},
		},
		"a deny list of nothing": {
			func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow} },
			map[string]string{"os/linux/seccomp-retain-set": `@appc.io/all`},
		},
		"no capabilities": {nil, map[string]string{"os/linux/capabilities-remove-set": "CAP_SYS_CHROOT"}},
		"capabilities": {
			func(s *specs.Spec) {
				set := []string{"CAP_KILL", "CAP_CHOWN"}
				s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: set, Effective: slices.Clone(set), Permitted: []string{"CAP_CHOWN", "CAP_KILL"}}
			}, map[string]string{"os/linux/capabilities-retain-set": `{"set":["CAP_KILL","CAP_CHOWN"]}`},
		},
		"the rest": {
			func(s *specs.Spec) {
				s.Process.NoNewPrivileges, s.Process.OOMScoreAdj, s.Process.SelinuxLabel = true, &score, "u:r:t:s0:c1,c2"
				s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}, CPU: &specs.LinuxCPU{Quota: &quota, Shares: &shares}}
			}, map[string]string{
				"os/linux/no-new-privileges": "true", "os/linux/oom-score-adj": "-7", "os/linux/selinux-context": `"level": "s0:c1,c2"`,
				"resource/memory": `"67108864"`, "resource/cpu": `"500m"`, "os/linux/cpu-shares": "2",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			app, err := Translate(base(c.change), Options{Name: "a"})
			if err != nil {
				t.Fatal(err)
			}
			got := isolators(app)
			for isolator, want := range c.want {
				if !strings.Contains(got[isolator], want) {
					t.Errorf("%s is %q, want %q", isolator, got[isolator], want)
				}
			}
			valid(t, app)
		})
	}
}

// valid checks that a stage1 can read a manifest with the app, because one unknown name
// makes a whole manifest unreadable.
func valid(t *testing.T, a *App) {
	t.Helper()
	m := schema.BlankPodManifest()
	id, err := types.NewHash("sha512-" + strings.Repeat("0", 128))
	if err != nil {
		t.Fatal(err)
	}
	m.Apps = schema.AppList{{Name: "a", Image: schema.RuntimeImage{ID: *id}, App: &a.App, Mounts: a.Mounts}}
	m.Volumes = a.Volumes
	text, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(text, schema.BlankPodManifest())
	}
	if err != nil {
		t.Errorf("a stage1 cannot read it: %v", err)
	}
}

func TestWhatCannotBeSaidIsRefusedByNameUnlessExcused(t *testing.T) {
	filter := func(s *specs.LinuxSeccomp) func(*specs.Spec) {
		return func(spec *specs.Spec) { spec.Linux.Seccomp = s }
	}
	mount := func(m specs.Mount) func(*specs.Spec) {
		return func(spec *specs.Spec) { spec.Mounts = []specs.Mount{m} }
	}
	for name, c := range map[string]struct {
		change           func(*specs.Spec)
		general, pointer string
	}{
		"conditions of system calls": {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"personality"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{}}}}}), "/linux/seccomp", "/linux/seccomp/syscalls/0/args"},
		"two actions": {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"a"}, Action: specs.ActErrno}, {Names: []string{"b"}, Action: specs.ActKill}}}), "/linux/seccomp", "/linux/seccomp/syscalls/1/action"},
		"an error of its own": {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"a"}, Action: specs.ActAllow}, {Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: errno(38)}}}), "/linux/seccomp", "/linux/seccomp/syscalls/1/action"},
		"a listener":                {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerPath: "/x"}), "/linux/seccomp", "/linux/seccomp/listenerPath"},
		"words for a listener":      {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerMetadata: "x"}), "/linux/seccomp", "/linux/seccomp/listenerMetadata"},
		"a tracer":                  {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActTrace, Syscalls: []specs.LinuxSyscall{{Names: []string{"a"}, Action: specs.ActAllow}}}), "/linux/seccomp", "/linux/seccomp/defaultAction"},
		"nothing at all":            {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActErrno}), "/linux/seccomp", "/linux/seccomp/syscalls"},
		"flags":                     {filter(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: []specs.LinuxSeccompFlag{"SECCOMP_FILTER_FLAG_LOG"}}), "/linux/seccomp", "/linux/seccomp/flags"},
		"ambient capabilities":      {func(s *specs.Spec) { s.Process.Capabilities = &specs.LinuxCapabilities{Ambient: []string{"CAP_KILL"}} }, "/process/capabilities", "/process/capabilities/ambient"},
		"different sets":            {func(s *specs.Spec) { s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}} }, "/process/capabilities", "/process/capabilities/effective"},
		"a variable of lines":       {func(s *specs.Spec) { s.Process.Env = []string{"A=b\nc"} }, "/process/env", "/process/env/0"},
		"a variable's name":         {func(s *specs.Spec) { s.Process.Env = []string{"A=b", "1=2"} }, "/process/env", "/process/env/1"},
		"a file system":             {mount(specs.Mount{Destination: "/x", Type: "overlay"}), "/mounts/*/type", "/mounts/0/type"},
		"an option":                 {mount(specs.Mount{Destination: "/x", Type: "bind", Source: "/y", Options: []string{"rbind", "nosuid"}}), "/mounts/*/options", "/mounts/0/options"},
		"shared propagation":        {mount(specs.Mount{Destination: "/x", Type: "bind", Source: "/y", Options: []string{"rbind", "rshared"}}), "/mounts/*/options", "/mounts/0/options"},
		"processes that are hidden": {mount(specs.Mount{Destination: "/proc", Type: "proc", Options: []string{"nosuid", "hidepid=2"}}), "/mounts/*/options", "/mounts/0/options"},
		"the size of /dev/shm":      {mount(specs.Mount{Destination: "/dev/shm/", Type: "tmpfs", Options: []string{"mode=1777", "size=1g"}}), "/mounts/*/options", "/mounts/0/options"},
		"cgroups to write to":       {mount(specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Options: []string{"rw"}}), "/mounts/*/options", "/mounts/0/options"},
		"the size of a tmpfs":       {mount(specs.Mount{Destination: "/x", Type: "tmpfs", Options: []string{"size=1k"}}), "/mounts/*/options", "/mounts/0/options"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Translate(base(c.change), Options{Name: "a"})
			if !errors.Is(err, errdefs.ErrNotImplemented) || !strings.Contains(err.Error(), c.pointer) {
				t.Errorf("error %v, want one that names %s", err, c.pointer)
			}
			app, err := Translate(base(c.change), Options{Name: "a", Excused: func(p string) bool { return p == c.general }})
			if err != nil {
				t.Fatalf("though it is excused: %v", err)
			}
			valid(t, app)
			if got := isolators(app); !strings.Contains(got["os/linux/seccomp-retain-set"]+got["os/linux/seccomp-remove-set"], "set") {
				t.Errorf("nothing is said of seccomp: %v", got)
			}
		})
	}
}

func TestWhatEveryAppHasIsNoVolume(t *testing.T) {
	spec := base(func(s *specs.Spec) {
		s.Mounts = []specs.Mount{ // containerd's
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro", "nosuid", "noexec", "nodev", "relatime"}},
		}
	})
	app, err := Translate(spec, Options{Name: "a"})
	if err != nil || len(app.Volumes)+len(app.Mounts) > 0 {
		t.Errorf("%+v, %v", app, err)
	}
}

func TestMountsBecomeVolumes(t *testing.T) {
	app, err := Translate(base(func(s *specs.Spec) {
		s.Mounts = []specs.Mount{
			{Destination: "/proc", Type: "proc", Options: []string{"nosuid"}},
			{Destination: "/v", Type: "bind", Source: "/host", Options: []string{"rbind", "ro", "rprivate"}},
			{Destination: "/w", Type: "none", Source: "below", Options: []string{"bind"}},
			{Destination: "/run", Type: "tmpfs", Options: []string{"mode=755", "uid=7"}},
		}
	}), Options{Name: "a", Bundle: "/bundle"})
	if err != nil {
		t.Fatal(err)
	}
	valid(t, app)
	if len(app.Volumes) != 3 || len(app.Mounts) != 3 {
		t.Fatalf("volumes %v, mounts %v", app.Volumes, app.Mounts)
	}
	v := app.Volumes
	if v[0].Source != "/host" || !*v[0].ReadOnly || !*v[0].Recursive {
		t.Errorf("first volume %v", v[0])
	}
	if v[1].Source != "/bundle/below" || *v[1].ReadOnly || *v[1].Recursive {
		t.Errorf("second volume %v", v[1])
	}
	if v[2].Kind != "empty" || *v[2].Mode != "755" || *v[2].UID != 7 || app.Mounts[2].Path != "/run" {
		t.Errorf("third volume %v at %s", v[2], app.Mounts[2].Path)
	}
}

func TestTheLastOfAVariableCountsAndRktsOwnAreAdded(t *testing.T) {
	app, err := Translate(base(func(s *specs.Spec) { s.Process.Env = []string{"A=1", "HOME=/h", "A=2"} }), Options{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	env := string(Env("name", &app.App))
	for _, want := range []string{"A=2\n", "HOME=/h\n", "PATH=/usr", "SHELL=", "USER=", "LOGNAME=", "AC_APP_NAME=name\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("no %q in\n%s", want, env)
		}
	}
	if strings.Contains(env, "A=1") {
		t.Errorf("A is there twice:\n%s", env)
	}
}

func FuzzWhatIsSaidCanBeRead(f *testing.F) {
	f.Add([]byte(`{"process":{"args":["a"],"env":["A=b"],"capabilities":{"bounding":["CAP_KILL"],"effective":["CAP_KILL"],"permitted":["CAP_KILL"]}},"linux":{"seccomp":{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW"}]}}}`))
	f.Add([]byte(`{"process":{"args":["a"],"cwd":"/x","user":{"uid":4294967295}},"mounts":[{"destination":"/x","type":"tmpfs","options":["mode=9"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s specs.Spec
		if json.Unmarshal(text, &s) != nil {
			return
		}
		app, err := Translate(&s, Options{Name: "a"})
		if err != nil {
			return
		}
		said, err := json.Marshal(app.App)
		if err != nil {
			return // refused before anything is written
		}
		if err := json.Unmarshal(said, &types.App{}); err != nil {
			t.Errorf("a stage1 cannot read %s: %v", said, err)
		}
	})
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// Every app of these tests is made twice, as the execs of execs_test.go: by the plan of system calls,
// with its root made by a thread of the supervisor, and by init.

// run makes and starts an app, and returns what it has written until its end.
func (p *pod) runApp(app string, group *abi.Cgroup, change func(*specs.Spec), args ...string) (output string, code int) {
	p.t.Helper()
	q := p.request(app, args...)
	q.Cgroup = group
	must(p.t, os.MkdirAll(filepath.Join(q.Rootfs, "etc"), 0o755))
	must(p.t, os.WriteFile(filepath.Join(q.Rootfs, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n"), 0o644))
	respec(p.t, &q, change)
	r, w := pipe(p.t)
	p.add(q, nil, w, w)
	p.expect(0, abi.AppStart, app)
	w.Close()
	output = readAll(p.t, r)
	if n := p.notice(); n != "exit "+app {
		p.t.Errorf("notice %q", n)
	}
	s, err := abi.ReadStatus(filepath.Join(p.dir, abi.StatusDir), app, "")
	must(p.t, err)
	p.expect(0, abi.AppRm, app)
	return output, s.Code
}

func TestAnAppIsTheSameByPlanAndByInit(t *testing.T) {
	score, umask := 500, uint32(0o27)
	caps := []string{"CAP_CHOWN", "CAP_NET_RAW", "CAP_SYS_ADMIN", "CAP_KILL"}
	process := func(change func(*specs.Process)) func(*specs.Spec) {
		return func(s *specs.Spec) { change(s.Process) }
	}
	private := func(kinds ...specs.LinuxNamespaceType) func(*specs.Spec) {
		return func(s *specs.Spec) {
			for _, k := range kinds {
				s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: k})
			}
		}
	}
	for name, change := range map[string]func(*specs.Spec){
		"root": process(func(p *specs.Process) {}),
		"a user": process(func(p *specs.Process) {
			p.User = specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{5, 6, 7}, Umask: &umask}
			p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Permitted: caps, Effective: caps, Inheritable: caps, Ambient: caps[1:]}
			p.Cwd = "/made/of/it"
		}),
		"limits": process(func(p *specs.Process) {
			p.OOMScoreAdj = &score
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 64, Hard: 1024}, {Type: "RLIMIT_CORE", Soft: 0, Hard: 1 << 20}}
		}),
		"a filter": withFilter,
		"no_new_privs": process(func(p *specs.Process) {
			p.NoNewPrivileges = true
			p.Env = []string{"PATH=:/absent:/bin", "A=1", "HOME=", "A=2", "B=a b\n"}
		}),
		"networks and names": func(s *specs.Spec) {
			private(specs.NetworkNamespace)(s)
			s.Hostname, s.Domainname = "name", "domain"
			s.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1", "kernel.shmmni": "123"}
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}})
		},
		"a cgroup namespace": func(s *specs.Spec) {
			private(specs.CgroupNamespace)(s)
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro"}})
		},
		"the host's cgroup namespace": func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup"})
		},
		"the host's processes": func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.PIDNamespace })
		},
		"masks": func(s *specs.Spec) {
			s.Root.Readonly = true
			s.Mounts[0].Options = []string{"nosuid", "hidepid=2"}
			s.Linux.MaskedPaths = []string{"/proc/acpi", "/proc/scsi", "/proc/timer_list", "/proc/absent"}
			s.Linux.ReadonlyPaths = []string{"/proc/sys", "/proc/absent"}
		},
		"mounts": func(s *specs.Spec) {
			s.Mounts = append(s.Mounts,
				specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666"}},
				specs.Mount{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue"},
				specs.Mount{Destination: "/made/bin", Type: "bind", Source: "/bin", Options: []string{"rbind", "ro"}},
				specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro"}},
			)
		},
		"a second procfs": func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/made/proc", Type: "proc", Source: "second", Options: []string{"ro", "subset=pid"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPod(t)
			for version, group := range hierarchies(t) {
				for _, dir := range group.Dirs {
					must(t, os.MkdirAll(dir, 0o755))
					t.Cleanup(func() {
						wait.Until(t, "the removal of "+dir, func() bool { err := os.Remove(dir); return err == nil || os.IsNotExist(err) })
					})
				}
				if len(group.Dirs) == 0 {
					group = nil
				}
				got := map[string]string{}
				for way, by := range ways {
					before := len(p.inits("apps"))
					output, code := p.runApp("web", group, func(s *specs.Spec) { change(s); by(s.Process) },
						"sh", "-c", state+`; busybox hostname; busybox ls -lR /dev; busybox cat /proc/self/mountinfo; busybox ip link show lo`, "a", "b c")
					must(t, os.RemoveAll(filepath.Join(p.dir, "bundles/web")))
					if code != 0 {
						t.Errorf("%s: exit code %d:\n%s", way, code, output)
					}
					got[way] = withoutNumbers(output)
					if after := p.inits("apps"); way == "by plan" && len(after) > before {
						t.Errorf("%s: by init: %q", version, after[before:])
					}
				}
				if !strings.Contains(got["by plan"], "leads a session") {
					t.Errorf("the state is not whole:\n%s", got["by plan"])
				}
				differs(t, version, got)
			}
		})
	}
}

// withoutNumbers takes numbers out of a text that the kernel counts up.
func withoutNumbers(text string) string {
	for _, expression := range []string{
		`(?m)^\d+ \d+ \d+:\d+ `, `(shared|master|propagate_from):\d+`, `(net|ipc|uts|pid|mnt|cgroup|pipe):\[\d+\]`,
		`[A-Z][a-z]{2} +\d+ \d+:\d+`, // times of files
	} {
		text = regexp.MustCompile(expression).ReplaceAllString(text, "")
	}
	return text
}

// A program that cannot be executed has the same error in both ways, in the same call, and the app that
// was to be started has the exit code of a shell.
func TestAFailedAppHasTheErrorOfInit(t *testing.T) {
	p := startPod(t)
	for name, c := range map[string]struct {
		change func(*specs.Spec)
		want   string
		code   int // of an app that was added
	}{
		"missing":      {func(s *specs.Spec) { s.Process.Args[0] = "absent" }, `exec: "absent": executable file not found in $PATH`, 0},
		"directory":    {func(s *specs.Spec) { s.Process.Args[0] = "/tmp" }, `exec: "/tmp": is a directory`, 0},
		"no directory": {func(s *specs.Spec) { s.Process.Cwd = "/bin/true" }, `chdir to cwd ("/bin/true") set in config.json failed: not a directory`, 0},
		"no mount": {func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/bin/true", Type: "tmpfs", Source: "tmpfs"})
		}, "mount tmpfs on /bin/true: not a directory", 0},
		"format":         {func(s *specs.Spec) { s.Process.Args[0] = "/tmp/text" }, "exec /tmp/text: exec format error", 126},
		"no interpreter": {func(s *specs.Spec) { s.Process.Args[0] = "/tmp/script" }, "exec /tmp/script: no such file or directory", 127},
	} {
		for way, by := range ways {
			q := p.request("web", "true")
			must(t, os.WriteFile(filepath.Join(q.Rootfs, "tmp/text"), []byte("no program"), 0o755))
			must(t, os.WriteFile(filepath.Join(q.Rootfs, "tmp/script"), []byte("#!/absent\n"), 0o755))
			respec(t, &q, func(s *specs.Spec) {
				s.Mounts = append(s.Mounts, specs.Mount{Destination: "/volume", Type: "bind", Source: t.TempDir(), Options: []string{"rbind"}})
				c.change(s)
				by(s.Process)
			})
			a := p.call(abi.AppAdd, entrypoint{request: q})
			if c.code != 0 && a.code == 0 {
				if a = p.do(abi.AppStart, "web"); a.code != 0 {
					p.exited("web", "", c.code, 0)
				}
				p.expect(0, abi.AppRm, "web")
			}
			if a.code != 1 || !strings.HasSuffix(a.text, c.want) {
				t.Errorf("%s, %s: exit code %d, %q, want %q", name, way, a.code, a.text, c.want)
			}
			must(t, os.RemoveAll(filepath.Join(p.dir, "bundles/web")))
		}
	}
	p.empty()
}

func TestAppsByInitAreCounted(t *testing.T) {
	p := startPod(t)
	p.runApp("plain", nil, func(*specs.Spec) {}, "true")
	if got := p.inits("apps"); got != nil {
		t.Errorf("an ordinary app was made by init: %q", got)
	}
	p.runApp("a", nil, func(s *specs.Spec) { ways["by init"](s.Process) }, "true")
	p.runApp("b", nil, func(s *specs.Spec) {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
	}, "true")
	p.runApp("c", nil, func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/bin", Type: "tmpfs", Source: "tmpfs", Options: []string{"tmpcopyup"}})
	}, "true")
	want := []string{"1 apps by init: an I/O priority", "1 apps by init: a time namespace", "1 apps by init: a tmpfs with files of the image"}
	if got := p.inits("apps"); !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// A file system that does not answer blocks the thread that makes an app's root. The call ends with its
// caller, and the pod goes on.
func TestARootThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	p := startPod(t)
	q := p.request("hung", "true")
	root := filepath.Join(p.dir, "hung")
	must(t, os.Mkdir(root, 0o755))
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("needs FUSE:", err)
	}
	must(t, unix.Mount("hung", root, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)))
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	q.Rootfs = root
	ctx, kill := context.WithCancel(t.Context())
	done := make(chan answer, 1)
	go func() { done <- p.call(abi.AppAdd, entrypoint{request: q, ctx: ctx}) }()
	wait.Until(t, "the app's process", func() bool { return len(children(t, p.ready.PID)) > 0 })
	p.add(p.request("web", "true"))
	p.expect(0, abi.AppStart, "web")
	p.exited("web", "", 0, 0)
	kill()
	if a := wait.For(t, "the end of the call", done); a.code == 0 {
		t.Error("the app was added")
	}
	p.expect(0, abi.AppRm, "hung")
	p.expect(0, abi.AppRm, "web")
	p.empty()
	must(t, unix.Close(fuse)) // ends every wait for an answer
	must(t, p.run.Process.Signal(syscall.SIGTERM))
	p.over()
}

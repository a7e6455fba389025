package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// Every exec of these tests is made twice: by the plan of system calls, and by init. A process
// with an I/O priority, even the usual one, is made by init. The attacks of
// integration/hostile rely on that, too.

// ways are the two ways in which an exec is made.
var ways = map[string]func(*specs.Process){
	"by plan": func(*specs.Process) {},
	"by init": func(p *specs.Process) {
		p.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 4}
	},
}

// execute calls enter with a process, and waits for its end. It returns what the process has
// written.
func (p *pod) execute(app string, process specs.Process, change func(*abi.Request)) (output string, a answer) {
	p.t.Helper()
	raw, err := json.Marshal(process)
	must(p.t, err)
	r, w := pipe(p.t)
	q := abi.Request{App: app, Exec: "e", Container: "ctr-" + app, Process: raw}
	if change != nil {
		change(&q)
	}
	a = p.call(abi.Enter, entrypoint{request: q, stdio: [3]*os.File{nil, w, w}})
	w.Close()
	if a.code != 0 {
		return "", a
	}
	return readAll(p.t, r), a
}

func readAll(t *testing.T, r *os.File) string {
	t.Helper()
	var text strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			return text.String()
		}
	}
}

// inits returns the lines of the supervisor's log about apps or execs that init has made.
func (p *pod) inits(what string) []string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "stage1/rootfs/rkt/native.log"))
	must(p.t, err)
	return regexp.MustCompile(`(?m)^\d+ `+what+` by init: .*$`).FindAllString(string(b), -1)
}

// state shows everything that an exec may differ in.
const state = `umask; pwd; echo args "$0" "$@"; busybox env; busybox id; ulimit -a; ulimit -Ha
busybox grep -vE "^(Name|Pid|Tgid|Ngid|PPid|NSpid|NStgid|NSpgid|NSsid|Vm.*|Rss.*|Threads|.*ctxt_switches|Mems_.*|SigQ|FDSize|Hugetlb.*)" /proc/self/status
cd /proc/self; cat oom_score_adj cgroup loginuid sessionid
for n in ns/* root; do echo $n $(busybox readlink $n); done
for f in fd/*; do [ -e $f ] && echo $f $(busybox readlink $f); done
busybox stat -Lc "%u %g %a" /proc/self/fd/1 /proc/self/environ; busybox cut -d " " -f 5- stat | busybox cut -d " " -f 3,15,16,37
test $(busybox cut -d " " -f 6 stat) = $(busybox cut -d " " -f 1 stat) && echo leads a session`

func TestAnExecIsTheSameByPlanAndByInit(t *testing.T) {
	score := 500
	umask := uint32(0o27)
	caps := []string{"CAP_CHOWN", "CAP_NET_RAW", "CAP_SYS_ADMIN", "CAP_KILL"}
	all := abi.Capabilities()
	for name, c := range map[string]struct {
		app     func(*specs.Spec)
		process func(*specs.Process)
	}{
		"root": {nil, nil},
		"root with capabilities": {nil, func(p *specs.Process) {
			p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Effective: caps[:1], Permitted: caps, Inheritable: caps[1:2], Ambient: caps[:2]}
		}},
		"a user": {nil, func(p *specs.Process) {
			p.User = specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{5, 6, 7}, Umask: &umask}
			p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Permitted: caps, Effective: caps}
			p.Cwd = "/tmp"
		}},
		"a user with ambient capabilities": {nil, func(p *specs.Process) {
			p.User = specs.User{UID: 1000, GID: 1000}
			p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Permitted: caps, Effective: caps, Inheritable: caps, Ambient: caps[1:]}
		}},
		"limits": {nil, func(p *specs.Process) {
			p.OOMScoreAdj = &score
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 64, Hard: 1024}, {Type: "RLIMIT_CORE", Soft: 0, Hard: 1 << 20}, {Type: "RLIMIT_STACK", Soft: 1 << 20, Hard: 1 << 24}}
		}},
		"environment": {nil, func(p *specs.Process) {
			p.Env = []string{"PATH=:/absent:/bin", "A=1", "HOME=", "A=2", "B=a b\n"}
			p.User = specs.User{UID: 1000, GID: 1000}
		}},
		"a home in the environment": {nil, func(p *specs.Process) { p.Env = append(p.Env, "HOME=/x") }},
		"no_new_privs and a filter": {withFilter, func(p *specs.Process) {
			p.NoNewPrivileges = true
			p.Capabilities = &specs.LinuxCapabilities{Bounding: caps}
		}},
		"a filter, root": {withFilter, func(p *specs.Process) {
			p.Capabilities = &specs.LinuxCapabilities{Bounding: caps, Permitted: caps, Effective: caps}
		}},
		"a filter, a user": {withFilter, func(p *specs.Process) { p.User = specs.User{UID: 1000, GID: 1000} }},
		"a user namespace": {mappedTo(100000), func(p *specs.Process) {
			p.User = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{3}}
			p.OOMScoreAdj = &score
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 64, Hard: 1024}}
		}},
		"a user namespace, root": {mappedTo(100000), func(p *specs.Process) {
			p.Capabilities = &specs.LinuxCapabilities{Bounding: all, Permitted: all, Effective: all}
		}},
		"a user namespace of the host's root": {mappedTo(0), nil},
		"no namespace but mounts": {func(s *specs.Spec) {
			s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.MountNamespace}}
			s.Mounts = s.Mounts[1:]
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/proc", Type: "bind", Source: "/proc", Options: []string{"rbind"}})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := startPod(t)
			r := p.request("web", "sleep", "1000")
			must(t, os.MkdirAll(filepath.Join(r.Rootfs, "etc"), 0o755))
			must(t, os.WriteFile(filepath.Join(r.Rootfs, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\n"), 0o644))
			if c.app != nil {
				respec(t, &r, c.app)
			}
			p.add(r)
			p.expect(0, abi.AppStart, "web")
			for version, group := range hierarchies(t) {
				for _, dir := range group.Dirs {
					must(t, os.MkdirAll(dir, 0o755))
					t.Cleanup(func() {
						wait.Until(t, "the removal of "+dir, func() bool { err := os.Remove(dir); return err == nil || os.IsNotExist(err) })
					})
				}
				got := map[string]string{}
				for way, by := range ways {
					before := len(p.inits("execs"))
					process := specs.Process{Args: []string{"sh", "-c", state, "a", "b c"}, Cwd: "/", Env: []string{"PATH=/sbin:/bin"}}
					if c.process != nil {
						c.process(&process)
					}
					by(&process)
					output, a := p.execute("web", process, func(r *abi.Request) {
						if len(group.Dirs) > 0 && name != "a user namespace" {
							r.Cgroup = group
						}
					})
					if a.code != 0 {
						t.Fatalf("%s: exit code %d: %s", way, a.code, a.text)
					}
					p.exited("web", "e", 0, 0)
					got[way] = regexp.MustCompile(`pipe:\[\d+\]`).ReplaceAllString(output, "pipe")
					if after := p.inits("execs"); way == "by plan" && len(after) > before {
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

// differs reports lines that a process has written in one way only.
func differs(t *testing.T, version string, got map[string]string) {
	t.Helper()
	if got["by plan"] == got["by init"] {
		return
	}
	for i, line := range strings.Split(got["by plan"], "\n") {
		if other := strings.Split(got["by init"]+strings.Repeat("\n", i), "\n"); other[i] != line {
			t.Errorf("%s: %q by plan, %q by init", version, line, other[i])
		}
	}
}

func TestAnExecOnATerminalIsTheSameByPlanAndByInit(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		p := startPod(t)
		r := p.request("web", "sleep", "1000")
		respec(t, &r, func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666"}})
			if mapped {
				mappedTo(100000)(s)
			}
		})
		p.add(r)
		p.expect(0, abi.AppStart, "web")
		listener := p.listen()
		defer unix.Close(listener)
		got := map[string]string{}
		for way, by := range ways {
			q := p.wantsTerminal("web", func(process *specs.Process) {
				process.Args = []string{"sh", "-c", `busybox stty -a; busybox stat -Lc "%u %g %a" /proc/self/fd/0; id -u; echo x >/dev/tty && echo its own
for f in /proc/self/fd/*; do [ -e $f ] && echo $f; done; busybox cut -d " " -f 8 /proc/self/stat | busybox sed 's/^[1-9].*/foreground/'; echo end`}
				process.User = specs.User{UID: 1000, GID: 1000}
				process.ConsoleSize = &specs.Box{Height: 33, Width: 77}
				by(process)
			})
			if a := p.call(abi.Enter, entrypoint{request: q}); a.code != 0 {
				t.Fatalf("%s: enter: exit code %d: %s", way, a.code, a.text)
			}
			master, buf := receiveMaster(t, listener), make([]byte, 4096)
			for !strings.Contains(got[way], "end\r\n") {
				n, err := master.Read(buf)
				if got[way] += string(buf[:n]); err != nil {
					t.Fatalf("%s: the terminal showed %q: %v", way, got[way], err)
				}
			}
			p.exited("web", "e", 0, 0)
		}
		if text := got["by plan"]; text != got["by init"] || !strings.Contains(text, "rows 33; columns 77") || !strings.Contains(text, "foreground") {
			t.Errorf("mapped %v: by plan:\n%s\nby init:\n%s", mapped, text, got["by init"])
		}
		if got := p.inits("execs"); len(got) != 1 || !strings.HasSuffix(got[0], "an I/O priority") {
			t.Errorf("by init: %q", got)
		}
	}
}

// A console that nobody wants ends the exec, though its program may have run.
func TestAnExecWhoseTerminalIsNotWantedFails(t *testing.T) {
	p := startPod(t)
	p.hostile("web", "true", nil)
	for way, by := range ways {
		a := p.call(abi.Enter, entrypoint{request: p.wantsTerminal("web", func(process *specs.Process) {
			process.Args = []string{"sleep", "1000"}
			by(process)
		})})
		if a.code != 1 || !strings.Contains(a.text, "connect to console socket") || a.ready.PID != 0 {
			t.Errorf("%s: exit code %d, %q", way, a.code, a.text)
		}
	}
	if pids := children(t, p.ready.PID); len(pids) != 1 {
		t.Errorf("the supervisor has children %v, want the app", pids)
	}
}

// withFilter gives a spec a seccomp filter of the usual kind.
func withFilter(s *specs.Spec) {
	errno := uint(unix.EPERM)
	s.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Syscalls:      []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno, ErrnoRet: &errno}},
	}
}

func TestExecsByInitAreCounted(t *testing.T) {
	p := startPod(t)
	p.add(p.request("web", "sleep", "1000"))
	p.expect(0, abi.AppStart, "web")
	process := specs.Process{Args: []string{"true"}, Cwd: "/", Env: []string{"PATH=/bin"}}
	for range 3 {
		p.execute("web", process, nil)
		p.exited("web", "e", 0, 0)
	}
	if got := p.inits("execs"); got != nil {
		t.Errorf("ordinary execs were made by init: %q", got)
	}
	ways["by init"](&process)
	for range 5 {
		p.execute("web", process, nil)
		p.exited("web", "e", 0, 0)
	}
	want := []string{"1 execs by init: an I/O priority", "2 execs by init: an I/O priority", "4 execs by init: an I/O priority"}
	if got := p.inits("execs"); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// An app that can trace every process that it sees could make an exec fail, and take over the init that
// makes it again.
func TestAFailedExecInAPodThatTracesIsNotMadeAgainByInit(t *testing.T) {
	for name, traces := range map[string]bool{"CAP_SYS_PTRACE": true, "CAP_NET_RAW": false} {
		p := startPod(t)
		r := p.request("web", "sleep", "1000")
		respec(t, &r, func(s *specs.Spec) { s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{name}} })
		p.add(r)
		p.expect(0, abi.AppStart, "web")
		_, a := p.execute("web", specs.Process{Args: []string{"absent"}, Cwd: "/", Env: []string{"PATH=/bin"}}, nil)
		if a.code == 0 || !strings.Contains(a.text, "absent") || traces && !strings.Contains(a.text, "no such file or directory") {
			t.Errorf("%s: exit code %d, %q", name, a.code, a.text)
		}
		if byInit := p.inits("execs"); traces != (byInit == nil) {
			t.Errorf("%s: made by init: %q", name, byInit)
		}
		if output, a := p.execute("web", specs.Process{Args: []string{"sh", "-c", "echo works"}, Cwd: "/", Env: []string{"PATH=/bin"}}, nil); output != "works\n" {
			t.Errorf("%s: the next exec: %q, %s", name, output, a.text)
		}
	}
}

// limited returns a cgroup that limits the number of its processes, and the file of the limit.
func limited(t *testing.T) (*abi.Cgroup, string) {
	t.Helper()
	for version, group := range hierarchies(t) {
		for _, dir := range group.Dirs {
			if b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control")); err == nil && !strings.Contains(string(b), "pids") {
				continue
			}
			must(t, os.Mkdir(dir, 0o755))
			t.Cleanup(func() { wait.Until(t, "the removal of "+dir, func() bool { return os.Remove(dir) == nil }) })
		}
		for _, dir := range group.Dirs {
			if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
				t.Log("the limit is of ", version)
				return group, filepath.Join(dir, "pids.max")
			}
		}
	}
	t.Skip("needs the pids controller")
	return nil, ""
}

// An exec is how people look into an app that has too many processes, and end them. With runc its
// process enters such an app, too.
func TestAnExecNeedsNoFreePlaceInTheLimitOfProcesses(t *testing.T) {
	group, limit := limited(t)
	version2 := group.Version == 2
	for _, c := range []struct {
		free, host, user int
		traces           bool
	}{
		{0, -1, 0, false}, {1, -1, 1000, false}, {0, 100000, 1000, false},
		{0, -1, 0, true}, {1, -1, 1000, true}, {1, -1, 0, true}, {1, 100000, 0, true}, {0, 100000, 1000, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			p := startPod(t)
			r := p.request("web", "sleep", "1000")
			r.Cgroup = group
			respec(t, &r, func(s *specs.Spec) {
				if c.host >= 0 {
					mappedTo(uint32(c.host))(s)
				}
				if c.traces {
					s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_SYS_PTRACE"}}
				}
			})
			p.add(r)
			p.expect(0, abi.AppStart, "web")
			must(t, os.WriteFile(limit, fmt.Append(nil, 1+c.free), 0))
			process := specs.Process{
				Args: []string{"sh", "-c", "while read l; do echo $l; done </proc/self/cgroup; sleep 0 & sleep 0 & echo forks"},
				Cwd:  "/", Env: []string{"PATH=/bin"}, User: specs.User{UID: uint32(c.user), GID: uint32(c.user)},
			}
			output, a := p.execute("web", process, func(q *abi.Request) { q.Cgroup, q.Bundle = group, r.Bundle })
			must(t, os.WriteFile(limit, []byte("max"), 0)) // the next app may need more for a moment
			if version2 && c.traces && c.host < 0 {
				if !strings.Contains(a.text, "resource temporarily unavailable") {
					t.Errorf("%q, %d %s; want it refused", output, a.code, a.text)
				}
			} else if !strings.Contains(output, filepath.Base(filepath.Dir(limit))) || strings.Contains(output, "forks") {
				t.Errorf("%q, %d %s; want an exec in the cgroup that cannot fork", output, a.code, a.text)
			}
			if byInit := p.inits("execs"); byInit != nil {
				t.Errorf("made by init: %q", byInit)
			}
			p.expect(0, abi.Stop, "")
			p.over()
		})
	}
}

// A supervisor without CAP_SYS_RESOURCE cannot set the limits of a process that has another user by then, as that of an exec
// by plan has.
func TestExecsOfUsersAreMadeWithoutTheCapabilityToSetTheirLimits(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: this thread gets the capability no more
	must(t, unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0))
	p := startPod(t)
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.ready.PID)); err != nil || capabilities(t, b)&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		t.Fatalf("the supervisor has the capability: %v", err)
	}
	p.add(p.request("web", "sleep", "1000"))
	p.expect(0, abi.AppStart, "web")
	for byInit, user := range []uint32{0, 1000} {
		process := specs.Process{
			Args: []string{"sh", "-c", "ulimit -n; busybox id -u"}, Cwd: "/", Env: []string{"PATH=/bin"}, User: specs.User{UID: user, GID: user},
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 64, Hard: 64}},
		}
		output, a := p.execute("web", process, nil)
		if want := fmt.Sprintf("64\n%d\n", user); output != want {
			t.Fatalf("user %d: %q, %s; want %q", user, output, a.text, want)
		}
		p.exited("web", "e", 0, 0)
		if got := p.inits("execs"); len(got) != byInit {
			t.Errorf("user %d: made by init: %q", user, got)
		}
	}
}

func capabilities(t *testing.T, status []byte) (effective uint64) {
	t.Helper()
	_, rest, _ := strings.Cut(string(status), "\nCapEff:\t")
	_, err := fmt.Sscanf(rest, "%x", &effective)
	must(t, err)
	return effective
}

func TestAFailedExecHasTheErrorOfInit(t *testing.T) {
	p := startPod(t)
	r := p.request("web", "sleep", "1000")
	must(t, os.WriteFile(filepath.Join(r.Rootfs, "tmp/text"), []byte("no program"), 0o755))
	must(t, os.WriteFile(filepath.Join(r.Rootfs, "bin/unreadable"), nil, 0o600))
	must(t, os.Chmod(filepath.Join(r.Rootfs, "tmp"), 0o777))
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	for name, c := range map[string]struct {
		change func(*specs.Process)
		want   string
	}{
		"missing":         {func(p *specs.Process) { p.Args[0] = "absent" }, `exec: "absent": executable file not found in $PATH`},
		"missing path":    {func(p *specs.Process) { p.Args[0] = "/absent" }, `exec: "/absent": stat /absent: no such file or directory`},
		"directory":       {func(p *specs.Process) { p.Args[0] = "/tmp" }, `exec: "/tmp": is a directory`},
		"no permission":   {func(p *specs.Process) { p.Args[0] = "unreadable" }, `exec: "unreadable": executable file not found in $PATH`},
		"no PATH":         {func(p *specs.Process) { p.Env = nil }, `exec: "true": executable file not found in $PATH`},
		"format":          {func(p *specs.Process) { p.Args[0] = "/tmp/text" }, `exec /tmp/text: exec format error`},
		"no directory":    {func(p *specs.Process) { p.Cwd = "/absent" }, `chdir to cwd ("/absent") set in config.json failed: no such file or directory`},
		"magic directory": {func(p *specs.Process) { p.Cwd = "/proc/self/fd/3" }, "a breakout is attempted"},
	} {
		for way, by := range ways {
			process := specs.Process{Args: []string{"true"}, Cwd: "/", Env: []string{"PATH=/bin"}}
			c.change(&process)
			by(&process)
			_, a := p.execute("web", process, nil)
			if a.code != 1 || !strings.HasSuffix(a.text, c.want) || a.ready.PID != 0 {
				t.Errorf("%s, %s: exit code %d, %q, want %q", name, way, a.code, a.text, c.want)
			}
		}
	}
	if pids := children(t, p.ready.PID); len(pids) != 1 {
		t.Errorf("the supervisor has children %v, want the app", pids)
	}
}

// Descriptors of the host are open while the process of an exec is prepared. No path of an app
// may lead through one (the class of CVE-2024-21626).
func TestNoPathOfAnExecLeadsThroughADescriptorOfTheHost(t *testing.T) {
	for version, group := range hierarchies(t) {
		t.Run(version, func(t *testing.T) {
			if len(group.Dirs) == 0 {
				t.Skip("needs a cgroup hierarchy of " + version)
			}
			for _, dir := range group.Dirs {
				must(t, os.Mkdir(dir, 0o755))
				t.Cleanup(func() { wait.Until(t, "the removal of "+dir, func() bool { return os.Remove(dir) == nil }) })
			}
			noPathLeadsOut(t, group)
		})
	}
}

func noPathLeadsOut(t *testing.T, group *abi.Cgroup) {
	p := startPod(t)
	r := p.request("web", "sleep", "1000")
	r.Cgroup = group
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	for way, by := range ways {
		for fd := 3; fd < 18; fd++ {
			base := fmt.Sprintf("/proc/self/fd/%d", fd)
			above := base + strings.Repeat("/..", 8)
			for what, change := range map[string]func(*specs.Process){
				"program":           func(p *specs.Process) { p.Args[0] = base + busybox },
				"program above":     func(p *specs.Process) { p.Args[0] = above + busybox },
				"PATH":              func(p *specs.Process) { p.Env[0] = "PATH=" + above + filepath.Dir(busybox) },
				"working directory": func(p *specs.Process) { p.Cwd = base },
			} {
				process := specs.Process{Args: []string{"busybox", "true"}, Cwd: "/", Env: []string{"PATH=/bin"}}
				change(&process)
				by(&process)
				if _, a := p.execute("web", process, func(q *abi.Request) { q.Cgroup = group }); a.code == 0 {
					t.Errorf("%s, %s through %s: it was executed", way, what, base)
					p.exited("web", "e", 0, 0)
				}
			}
		}
	}
	p.expect(0, abi.Stop, "")
	p.over()
}

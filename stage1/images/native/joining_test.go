package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestAnAppJoinsTheNamespacesOfAnother(t *testing.T) {
	p := startPod(t)
	pause := p.request("pause", "sleep", "1000")
	respec(t, &pause, func(s *specs.Spec) {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	})
	leader := p.add(pause)
	p.expect(0, abi.AppStart, "pause")
	r := p.request("web", "sleep", "1000")
	respec(t, &r, func(s *specs.Spec) { s.Linux.Namespaces = joined(leader, "network", "ipc", "uts", "pid") })
	pid := p.add(r)
	for ns, same := range map[string]bool{"net": true, "ipc": true, "uts": true, "pid": true, "mnt": false} {
		if (namespace(t, leader, ns) == namespace(t, pid, ns)) != same {
			t.Errorf("%s: shared %v, want %v", ns, !same, same)
		}
	}
	p.expect(0, abi.AppStart, "web")
	if a := p.enter("web", "e", [3]*os.File{}, "true"); a.code != 0 {
		t.Errorf("enter: %d %s", a.code, a.text)
	}
	p.exited("web", "e", 0, 0)
	p.expect(0, abi.AppStop, "web")
	p.exited("web", "", 137, 9)
}

// joined lists namespaces of a process, and a mount namespace of its own.
func joined(pid int, kinds ...string) []specs.LinuxNamespace {
	files := map[string]string{"network": "net"}
	ns := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	for _, k := range kinds {
		file := k
		if f := files[k]; f != "" {
			file = f
		}
		ns = append(ns, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(k), Path: fmt.Sprintf("/proc/%d/ns/%s", pid, file)})
	}
	return ns
}

func TestAPodOfAUserNamespace(t *testing.T) {
	p := startPod(t)
	maps := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	pause := p.request("pause", "sleep", "1000")
	respec(t, &pause, func(s *specs.Spec) {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace},
			specs.LinuxNamespace{Type: specs.NetworkNamespace})
		s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
	})
	leader := p.add(pause)
	p.expect(0, abi.AppStart, "pause")

	r := p.request("web", "sh", "-c", "id -u; cat /proc/self/uid_map; sleep 1000")
	respec(t, &r, func(s *specs.Spec) {
		s.Linux.Namespaces = append(joined(leader, "network", "ipc", "uts", "user"), specs.LinuxNamespace{Type: specs.PIDNamespace})
		s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
	})
	out, stdout := pipe(t)
	pid := p.add(r, nil, stdout)
	p.expect(0, abi.AppStart, "web")
	if uid := status(t, pid, "Uid"); !strings.HasPrefix(uid, "100000\t100000") {
		t.Errorf("the app runs as %s", uid)
	}
	buf := make([]byte, 256)
	n, err := io.ReadAtLeast(out, buf, len("0\n         0     100000      65536"))
	if got := strings.Fields(string(buf[:n])); err != nil || strings.Join(got, " ") != "0 0 100000 65536" {
		t.Errorf("inside it is %q (%v)", got, err)
	}
	if a := p.enter("web", "e", [3]*os.File{}, "sleep", "1000"); a.code != 0 {
		t.Errorf("enter: %d %s", a.code, a.text)
	} else {
		for _, ns := range []string{"user", "net", "pid", "mnt"} {
			if x, y := namespace(t, pid, ns), namespace(t, a.ready.PID, ns); x != y {
				t.Errorf("%s: the exec is in %s, want %s", ns, y, x)
			}
		}
	}
	p.expect(0, abi.Stop, "")
	p.over()
}

func TestOnlyTheMakerOfANetworkBringsUpItsLoopback(t *testing.T) {
	p := startPod(t)
	maps := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	interfaces := func(app string) string {
		t.Helper()
		out, stdout := pipe(t)
		if a := p.enter(app, "e", [3]*os.File{nil, stdout}, "busybox", "ifconfig"); a.code != 0 {
			t.Fatalf("enter %s: %d %s", app, a.code, a.text)
		}
		p.exited(app, "e", 0, 0)
		stdout.Close()
		b, err := io.ReadAll(out)
		must(t, err)
		return string(b)
	}
	for _, mapped := range []bool{false, true} {
		name := map[bool]string{false: "maker", true: "mapped"}[mapped]
		r := p.request(name, "sleep", "1000")
		respec(t, &r, func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
			if mapped {
				s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
				s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
			}
		})
		pid := p.add(r)
		p.expect(0, abi.AppStart, name)
		if up := interfaces(name); !strings.Contains(up, "127.0.0.1") {
			t.Errorf("%s: up are %q", name, up)
		}
		if mapped {
			continue
		}
		if out, err := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-n", busybox, "ifconfig", "lo", "down").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		joins := p.request("joins", "sleep", "1000")
		respec(t, &joins, func(s *specs.Spec) { s.Linux.Namespaces = joined(pid, "network") })
		p.add(joins)
		if up := interfaces("joins"); up != "" {
			t.Errorf("in a network that was joined up are %q", up)
		}
	}
}

func TestATimeNamespaceHasClocksOfItsOwn(t *testing.T) {
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		t.Skip("the kernel has no time namespaces")
	}
	p := startPod(t)
	maps := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	for _, mapped := range []bool{false, true} {
		name := map[bool]string{false: "root", true: "mapped"}[mapped]
		const ahead = 1_000_000 // seconds
		r := p.request(name, "sleep", "1000")
		respec(t, &r, func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
			s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: ahead}, "monotonic": {Secs: 7, Nanosecs: 5}}
			if mapped {
				s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
				s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
			}
		})
		pid := p.add(r)
		p.expect(0, abi.AppStart, name)
		if namespace(t, pid, "time") == namespace(t, os.Getpid(), "time") {
			t.Errorf("%s is in the host's time namespace", name)
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timens_offsets", pid)); err != nil ||
			!slices.Equal(strings.Fields(string(b)), []string{"monotonic", "7", "5", "boottime", fmt.Sprint(ahead), "0"}) {
			t.Errorf("%s has the offsets %q (%v)", name, b, err)
		}
		out, stdout := pipe(t)
		a := p.enter(name, "e", [3]*os.File{nil, stdout}, "busybox", "cut", "-d.", "-f1", "/proc/uptime")
		if a.code != 0 {
			t.Fatalf("enter %s: %d %s", name, a.code, a.text)
		}
		p.exited(name, "e", 0, 0)
		stdout.Close()
		inside, err := io.ReadAll(out)
		must(t, err)
		if up, err := strconv.Atoi(strings.TrimSpace(string(inside))); err != nil || up < ahead {
			t.Errorf("%s: its machine is up for %q seconds, want more than %d", name, inside, ahead)
		}
		beside := p.request(name+"-beside", "sleep", "1000")
		respec(t, &beside, func(s *specs.Spec) {
			s.Linux.Namespaces = joined(pid, "time")
			if mapped {
				s.Linux.Namespaces = joined(pid, "time", "user", "pid", "ipc")
				s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
			}
		})
		if other := p.add(beside); namespace(t, other, "time") != namespace(t, pid, "time") {
			t.Errorf("what joins %s is in another time namespace", name)
		}
	}
}

func TestHooksReadTheState(t *testing.T) {
	p := startPod(t)
	r := p.request("web", "sleep", "1000")
	hook := func(name string, more ...string) specs.Hook {
		return specs.Hook{
			Path: busybox, Args: []string{"sh", "-c", "busybox cat >" + filepath.Join(p.dir, name) + "; busybox readlink /proc/self/ns/mnt >>" + filepath.Join(p.dir, name)},
			Env: append([]string{"PATH=/bin"}, more...),
		}
	}
	respec(t, &r, func(s *specs.Spec) {
		s.Annotations = map[string]string{"colour": "blue"}
		s.Hooks = &specs.Hooks{
			Prestart: []specs.Hook{hook("prestart")}, CreateRuntime: []specs.Hook{hook("createRuntime")},
			Poststart: []specs.Hook{hook("poststart"), {Path: "/absent"}, hook("next")},
		}
	})
	pid := p.add(r)
	for _, kind := range []string{"prestart", "createRuntime"} {
		checkState(t, p, kind, "creating", pid)
	}
	// If a poststart hook fails, the app is ended, and the call returns when the exit is
	// recorded.
	if a := p.expect(1, abi.AppStart, "web"); !strings.Contains(a.text, "poststart hook 1 (/absent)") {
		t.Errorf("start: %s", a.text)
	}
	checkState(t, p, "poststart", "running", pid)
	p.exited("web", "", 137, 9)
	if _, err := os.Stat(filepath.Join(p.dir, "next")); err == nil {
		t.Error("the hook after the one that failed was run")
	}
}

func checkState(t *testing.T, p *pod, kind, want string, pid int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, kind))
	must(t, err)
	document, where, _ := strings.Cut(string(b), "mnt:")
	var s specs.State
	must(t, json.Unmarshal([]byte(document), &s))
	if string(s.Status) != want || s.Pid != pid || !strings.HasPrefix(s.ID, "ctr-") || s.Annotations["colour"] != "blue" || s.Version == "" ||
		filepath.Dir(s.Bundle) != filepath.Join(p.dir, "bundles") {
		t.Errorf("%s read %+v, want status %s and pid %d", kind, s, want, pid)
	}
	if ours := namespace(t, os.Getpid(), "mnt"); ours != "mnt:"+strings.TrimSpace(where) {
		t.Errorf("%s ran in mount namespace %s, want %s", kind, where, ours)
	}
}

func TestATerminalIsSentToTheConsoleSocket(t *testing.T) {
	p := startPod(t)
	r := p.request("web", "sh", "-c", "test -t 0 && echo a terminal; read x; echo got $x")
	respec(t, &r, func(s *specs.Spec) {
		s.Mounts = append(s.Mounts,
			specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666"}})
	})
	for _, c := range []struct{ name, path string }{{"web", "console.sock"}, {"exec", filepath.Join(p.dir, "x.sock")}} {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		path := c.path
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.dir, path)
		}
		must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
		must(t, unix.Listen(fd, 1))
		if c.name == "web" {
			r.Terminal, r.ConsoleSocket = true, c.path
			p.add(r)
			p.expect(0, abi.AppStart, "web")
		} else {
			raw, err := json.Marshal(specs.Process{Args: []string{"sh", "-c", "test -t 0 && echo a terminal; read x; echo got $x"}, Cwd: "/", Env: []string{"PATH=/bin"}})
			must(t, err)
			q := abi.Request{App: "web", Exec: "e", Container: "ctr-web", Bundle: r.Bundle, Process: raw, Terminal: true, ConsoleSocket: c.path}
			if a := p.call(abi.Enter, entrypoint{request: q}); a.code != 0 {
				t.Fatalf("enter: %d %s", a.code, a.text)
			}
		}
		master := receiveMaster(t, fd)
		if c.name == "web" {
			expectLine(t, master, "a terminal")
			defer func() {
				_, _ = master.WriteString("this\n")
				expectLine(t, master, "got this")
				p.exited("web", "", 0, 0)
			}()
			continue
		}
		expectLine(t, master, "a terminal")
		_, err = master.WriteString("that\n")
		must(t, err)
		expectLine(t, master, "got that")
		p.exited("web", "e", 0, 0)
	}
}

func receiveMaster(t *testing.T, listener int) *os.File {
	t.Helper()
	conn, _, err := unix.Accept(listener)
	must(t, err)
	defer unix.Close(conn)
	_, fds, err := proc.Receive(conn, make([]byte, 64), 4)
	must(t, err)
	if len(fds) != 1 {
		t.Fatalf("%d descriptors", len(fds))
	}
	f := os.NewFile(uintptr(fds[0]), "master")
	t.Cleanup(func() { f.Close() })
	return f
}

func expectLine(t *testing.T, r io.Reader, want string) {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 1)
	for !strings.Contains(got.String(), want+"\r\n") {
		if _, err := r.Read(buf); err != nil {
			t.Fatalf("the terminal showed %q, want %q: %v", got.String(), want, err)
		}
		got.Write(buf)
	}
}

// hierarchies returns the parents of a cgroup for each version that this machine
// has: the hierarchies of version 1, and the one of version 2.
func hierarchies(t *testing.T) map[string]*abi.Cgroup {
	t.Helper()
	found := map[string]*abi.Cgroup{"version 1": {Version: 1}, "version 2": {Version: 2}}
	for _, root := range []string{"", "pids", "freezer", "memory", "unified"} {
		dir := filepath.Join("/sys/fs/cgroup", root)
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) != nil {
			continue
		}
		version := map[int64]string{unix.CGROUP_SUPER_MAGIC: "version 1", unix.CGROUP2_SUPER_MAGIC: "version 2"}[fs.Type]
		if c := found[version]; c != nil {
			c.Dirs = append(c.Dirs, filepath.Join(dir, fmt.Sprintf("native-test-%d", os.Getpid())))
		}
	}
	return found
}

func TestAppsAndExecsAreInTheAppsCgroupAndTheSupervisorIsNot(t *testing.T) {
	for version, group := range hierarchies(t) {
		for _, mapped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, user namespace %v", version, mapped), func(t *testing.T) {
				if len(group.Dirs) == 0 {
					t.Skip("needs a cgroup hierarchy of " + version)
				}
				for _, dir := range group.Dirs {
					must(t, os.Mkdir(dir, 0o755))
					t.Cleanup(func() { wait.Until(t, "the removal of "+dir, func() bool { return os.Remove(dir) == nil }) })
				}
				inTheAppsCgroup(t, group, mapped)
			})
		}
	}
}

func inTheAppsCgroup(t *testing.T, group *abi.Cgroup, mapped bool) {
	p := startPod(t)
	r := p.request("web", "sleep", "1000")
	r.Cgroup = group
	respec(t, &r, func(s *specs.Spec) {
		// CRI gives its containers a cgroup namespace on version 2.
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
		if mapped {
			maps := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
			s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
		}
	})
	pid := p.add(r)
	p.expect(0, abi.AppStart, "web")
	raw, err := json.Marshal(specs.Process{Args: []string{"sleep", "1000"}, Cwd: "/", Env: []string{"PATH=/bin"}})
	must(t, err)
	a := p.call(abi.Enter, entrypoint{request: abi.Request{App: "web", Exec: "e", Process: raw, Cgroup: group, Bundle: r.Bundle}})
	if a.code != 0 {
		t.Fatalf("enter: %d %s", a.code, a.text)
	}
	for _, kind := range []string{"cgroup", "user"} {
		x, y, host := namespace(t, pid, kind), namespace(t, a.ready.PID, kind), namespace(t, os.Getpid(), kind)
		if own := kind == "cgroup" || mapped; x != y || (x != host) != own {
			t.Errorf("the app is in %s, its exec in %s, the host's is %s", x, y, host)
		}
	}
	for _, dir := range group.Dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		must(t, err)
		got := strings.Fields(string(b))
		slices.Sort(got)
		want := []string{fmt.Sprint(pid), fmt.Sprint(a.ready.PID)}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s holds %v, want %v", dir, got, want)
		}
	}
	p.expect(0, abi.Stop, "")
	p.over()
}

func TestAnAppJoinsAMountNamespaceByItsPath(t *testing.T) {
	p := startPod(t)
	owner := exec.Command("unshare", "--mount", "sleep", "1000")
	must(t, owner.Start())
	t.Cleanup(func() { owner.Process.Kill(); owner.Wait() })
	path := fmt.Sprintf("/proc/%d/ns/mnt", owner.Process.Pid)
	wait.Until(t, "unshare has its mount namespace", func() bool {
		own, err := os.Readlink(path)
		must(t, err)
		return own != namespace(t, os.Getpid(), "mnt")
	})
	r := p.request("web", "sh", "-c", "ls /; exec sleep 1000")
	respec(t, &r, func(s *specs.Spec) { s.Linux.Namespaces[0].Path = path })
	out, stdout := pipe(t)
	pid := p.add(r, nil, stdout)
	p.expect(0, abi.AppStart, "web")
	if namespace(t, pid, "mnt") != namespace(t, owner.Process.Pid, "mnt") {
		t.Error("the app has a mount namespace of its own")
	}
	const root = "bin\ndev\nproc\ntmp\n"
	expectOutput(t, out, root)
	out, stdout = pipe(t)
	if a := p.enter("web", "e", [3]*os.File{nil, stdout}, "ls", "/"); a.code != 0 {
		t.Fatalf("enter: %d %s", a.code, a.text)
	}
	expectOutput(t, out, root)
	// Neither has the namespace mounts of the host, nor the host mounts of the app.
	if info := readFile(t, fmt.Sprintf("/proc/%d/mountinfo", pid)); strings.Contains(info, " /sys ") {
		t.Errorf("the host's mounts are in the app's namespace:\n%s", info)
	}
	p.mountsNothing()
	p.expect(0, abi.AppStop, "web")
}

// In the host's own mount namespace the app's root would take the place of the host's.
func TestNoAppHasTheMountNamespaceOfTheHost(t *testing.T) {
	for path, want := range map[string]string{
		"/proc/self/ns/mnt":                         "", // of the supervisor
		fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid()): "it is the host's mount namespace",
		"/proc/1/ns/mnt":                            "mount namespace",
		"/absent":                                   "no such file or directory",
		fmt.Sprintf("/proc/%d/ns/net", os.Getpid()): "is not a mount namespace",
		fmt.Sprintf("/proc/%d/root", os.Getpid()):   "is not a mount namespace",
	} {
		p := startPod(t)
		r := p.request("web", "true")
		respec(t, &r, func(s *specs.Spec) { s.Linux.Namespaces[0].Path = path })
		if a := p.call(abi.AppAdd, entrypoint{request: r}); a.code == 0 || !strings.Contains(a.text, want) {
			t.Errorf("%s: code %d, %s, want %q", path, a.code, a.text, want)
		}
		p.mountsNothing()
	}
}

// without removes the mount namespace from a spec, and everything that needs one.
func without(s *specs.Spec) {
	s.Mounts, s.Linux.Namespaces = nil, s.Linux.Namespaces[1:]
}

func TestAnAppWithoutAMountNamespaceHasItsRootAndMakesNoMount(t *testing.T) {
	p := startPod(t)
	r := p.request("web", "sh", "-c", "ls /; echo x >/dev/null && echo null; exec sleep 1000")
	respec(t, &r, without)
	out, stdout := pipe(t)
	pid := p.add(r, nil, stdout)
	p.expect(0, abi.AppStart, "web")
	if namespace(t, pid, "mnt") != namespace(t, os.Getpid(), "mnt") {
		t.Error("the app has a mount namespace")
	}
	const root = "bin\ndev\nproc\ntmp\n"
	expectOutput(t, out, root+"null\n")
	// An exec joins no mount namespace with the app's root, and must get that root
	// nevertheless.
	out, stdout = pipe(t)
	if a := p.enter("web", "e", [3]*os.File{nil, stdout}, "ls", "/", "/.."); a.code != 0 {
		t.Fatalf("enter: %d %s", a.code, a.text)
	}
	expectOutput(t, out, "/:\n"+root+"\n/..:\n"+root)
	p.exited("web", "e", 0, 0)
	p.mountsNothing()
	// After the supervisor was killed, only a directory is left of the app.
	must(t, p.run.Process.Kill())
	p.over()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	p.mountsNothing()
	must(t, os.RemoveAll(r.Rootfs))
}

func TestWhatNeedsAMountNeedsAMountNamespace(t *testing.T) {
	for field, change := range map[string]func(*specs.Spec){
		"mounts":                  func(s *specs.Spec) { s.Mounts = []specs.Mount{{Destination: "/proc", Type: "proc"}} },
		"root.readonly":           func(s *specs.Spec) { s.Root.Readonly = true },
		"linux.maskedPaths":       func(s *specs.Spec) { s.Linux.MaskedPaths = []string{"/tmp"} },
		"linux.readonlyPaths":     func(s *specs.Spec) { s.Linux.ReadonlyPaths = []string{"/tmp"} },
		"linux.rootfsPropagation": func(s *specs.Spec) { s.Linux.RootfsPropagation = "private" },
		"process.terminal":        func(s *specs.Spec) { s.Process.Terminal = true },
		"linux.uidMappings": func(s *specs.Spec) {
			s.Linux.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
			s.Linux.GIDMappings = s.Linux.UIDMappings
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		},
	} {
		p := startPod(t)
		r := p.request("web", "true")
		respec(t, &r, without)
		respec(t, &r, change)
		want := field + ": not supported without a mount namespace"
		if a := p.call(abi.AppAdd, entrypoint{request: r}); a.code != abi.ExitNotImplemented || !strings.Contains(a.text, want) {
			t.Errorf("%s: code %d, %s", field, a.code, a.text)
		}
		p.mountsNothing()
	}
}

// mountsNothing checks that the host has no mount that concerns the pod's directory.
func (p *pod) mountsNothing() {
	p.t.Helper()
	for line := range strings.Lines(readFile(p.t, "/proc/self/mountinfo")) {
		if strings.Contains(line, p.dir) {
			p.t.Errorf("the host has the mount %s", line)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

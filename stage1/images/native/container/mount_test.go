package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func bindOf(source, destination string, options ...string) specs.Mount {
	return specs.Mount{Source: source, Destination: destination, Type: "bind", Options: append([]string{"rbind"}, options...)}
}

func TestBindMounts(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content\n"), 0o644))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, "sock")}))
	b := newBox(t).sh("cat /a/b/dir/file /files/one; stat -c %F /run/sock /dev/kmsg2; touch /a/b/dir/x 2>&1 || true; touch /rw/made; cat /proc/self/mountinfo").mount(
		bindOf(dir, "/a/b/dir", "ro", "noexec"),
		bindOf(filepath.Join(dir, "file"), "/files/one", "nosuid", "nodev", "noatime"),
		bindOf(filepath.Join(dir, "sock"), "/run/sock"),
		bindOf("/dev/null", "/dev/kmsg2"),
		bindOf(dir, "/rw", "rw", "strictatime", "nosymfollow"),
		specs.Mount{Source: dir, Destination: "/shared", Options: []string{"bind", "shared"}},
		specs.Mount{Source: dir, Destination: "/unbindable", Options: []string{"bind", "unbindable"}},
		specs.Mount{Source: "relative", Destination: "/relative", Options: []string{"bind"}},
	)
	must(t, os.Mkdir(filepath.Join(b.request.Bundle, "relative"), 0o755))
	out := b.ok()
	contains(t, out, "content\ncontent\nsocket\ncharacter special file\n")
	contains(t, out, "touch: /a/b/dir/x: Read-only file system")
	for point, want := range map[string]string{
		"/a/b/dir":    " ro,noexec,relatime ",
		"/files/one":  " rw,nosuid,nodev,noatime ",
		"/rw":         " rw,nosymfollow ",
		"/shared":     " shared:",
		"/unbindable": " unbindable ",
	} {
		contains(t, lineOf(t, out, point), want)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
}

func TestABindMountResetsFlagsThatItDoesNotName(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_RDONLY, ""))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	out := newBox(t).sh("cat /proc/self/mountinfo").mount(bindOf(dir, "/as-it-is"), bindOf(dir, "/rw", "rw"), bindOf(dir, "/suid", "nodev", "ro")).ok()
	contains(t, lineOf(t, out, "/as-it-is"), " ro,nosuid,noexec,")
	contains(t, lineOf(t, out, "/rw"), " rw,relatime ")
	contains(t, lineOf(t, out, "/suid"), " ro,nodev,relatime ")
}

func TestRecursiveOptionsReachSubmounts(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	must(t, os.Mkdir(sub, 0o755))
	must(t, unix.Mount("tmpfs", sub, "tmpfs", 0, ""))
	defer unix.Unmount(sub, unix.MNT_DETACH)
	out := newBox(t).sh("cat /proc/self/mountinfo").mount(
		bindOf(dir, "/plain", "ro"), bindOf(dir, "/rro", "rro", "rnosuid", "rnoatime"),
	).ok()
	contains(t, lineOf(t, out, "/plain/sub"), " rw,")
	contains(t, lineOf(t, out, "/plain"), " ro,")
	for _, p := range []string{"/rro", "/rro/sub"} {
		contains(t, lineOf(t, out, p), " ro,nosuid,noatime ")
	}
}

func TestAppMountsDoNotReachTheHost(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	defer unix.Unmount(dir, unix.MNT_DETACH)
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	script := "mkdir -p /v/in; mount -t tmpfs tmpfs /v/in; cat /proc/self/mountinfo"

	out := newBox(t).sh(script).mount(bindOf(dir, "/v")).ok()
	contains(t, lineOf(t, out, "/v"), "master:")
	if mounted(t, filepath.Join(dir, "in")) {
		t.Error("a mount has propagated to the host")
	}
	out = newBox(t).sh(script).mount(bindOf(dir, "/v", "rprivate")).ok()
	lacks(t, lineOf(t, out, "/v"), "master:")

	// Bidirectional: the root is shared, and so is the mount.
	for _, planned := range []bool{false, true} {
		b := newBox(t).sh(script).mount(bindOf(dir, "/v", "rshared"))
		b.once, b.planned = true, planned
		b.spec.Linux.RootfsPropagation = "rshared"
		b.ok()
		if !mounted(t, filepath.Join(dir, "in")) {
			t.Error("a mount in a shared one has not propagated to the host")
		}
		must(t, unix.Unmount(filepath.Join(dir, "in"), unix.MNT_DETACH))
		lines, err := os.ReadFile("/proc/self/mountinfo")
		must(t, err)
		lacks(t, string(lines), b.rootfs)
	}
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return strings.Contains(string(b), " "+dir+" ")
}

func TestTmpfs(t *testing.T) {
	b := newBox(t).sh("stat -c '%n %a' /tmp /fresh /copied /copied/dir; cat /copied/dir/file; readlink /copied/link; stat -c '%u %a' /copied/dir/file; touch /ro/x 2>&1 || true; ls /ro; cat /proc/self/mountinfo").mount(
		specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "size=1m"}},
		specs.Mount{Destination: "/fresh", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=711"}},
		specs.Mount{Destination: "/copied", Type: "tmpfs", Source: "tmpfs", Options: []string{"tmpcopyup"}},
		specs.Mount{Destination: "/ro", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "tmpcopyup"}},
		bindOf("/etc/hostname", "/ro/below"),
	)
	b.write("copied/dir/file", "content\n")
	b.write("ro/there", "")
	must(t, os.Chmod(filepath.Join(b.rootfs, "copied/dir"), 0o750))
	must(t, os.Chown(filepath.Join(b.rootfs, "copied/dir/file"), 12, 13))
	must(t, os.Symlink("dir/file", filepath.Join(b.rootfs, "copied/link")))
	out := b.ok()
	for _, want := range []string{
		"/tmp 1777\n", "/fresh 711\n", "/copied 755\n", "/copied/dir 750\n", "content\n", "dir/file\n", "12 644\n",
		"touch: /ro/x: Read-only file system", "below\n", "there\n",
	} {
		contains(t, out, want)
	}
	contains(t, lineOf(t, out, "/tmp"), "size=1024k")
	contains(t, lineOf(t, out, "/tmp"), " rw,nosuid,")
	contains(t, lineOf(t, out, "/ro"), " ro,")
}

func TestDestinationsStayInsideTheRoot(t *testing.T) {
	host := t.TempDir()
	source := t.TempDir()
	must(t, os.WriteFile(filepath.Join(source, "secret"), nil, 0o644))
	b := newBox(t).sh("cat /proc/self/mountinfo").mount(
		bindOf(source, "/absolute/below"),
		bindOf(source, "/up/below"),
		bindOf(source, "/dangling"),
		bindOf(filepath.Join(source, "secret"), "/etc/resolv.conf"),
		bindOf(source, "/../../../../outside"),
	)
	must(t, os.Symlink(host, filepath.Join(b.rootfs, "absolute")))
	must(t, os.Symlink("../../../../../.."+host, filepath.Join(b.rootfs, "up")))
	must(t, os.Symlink("/run/made/for/it", filepath.Join(b.rootfs, "dangling")))
	must(t, os.Symlink("../run/resolve/stub.conf", filepath.Join(b.rootfs, "etc/resolv.conf")))
	out := b.ok()
	for _, p := range []string{host + "/below", "/run/made/for/it", "/run/resolve/stub.conf", "/outside"} {
		lineOf(t, out, p)
	}
	entries, err := os.ReadDir(host)
	must(t, err)
	if len(entries) > 0 {
		t.Errorf("made on the host: %v", entries)
	}
}

func TestMountsOverProcAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("mine\n"), 0o644))
	for _, c := range []struct {
		mount specs.Mount
		want  string
	}{
		{bindOf(dir, "/proc"), `"/proc" cannot be mounted because it is not of type proc`},
		{bindOf(dir, "/proc/sys"), `"/proc/sys" cannot be mounted because it is inside /proc`},
		{bindOf(dir, "/link/sys"), `"/proc/sys" cannot be mounted because it is inside /proc`},
		{bindOf(file, "/proc/self/attr/exec"), `is inside /proc`},
		{specs.Mount{Destination: "/proc/tty", Type: "tmpfs", Source: "tmpfs"}, `"/proc/tty" cannot be mounted because it is inside /proc`},
		{specs.Mount{Destination: "/", Type: "tmpfs", Source: "tmpfs"}, `nothing can be mounted on /`},
	} {
		b := newBox(t).sh("true").mount(c.mount)
		must(t, os.Symlink("/proc", filepath.Join(b.rootfs, "link")))
		contains(t, b.fails(), c.want)
	}
	out := newBox(t).sh("cat /proc/uptime").mount(bindOf(file, "/proc/uptime")).ok()
	contains(t, out, "mine")
	newBox(t).sh("test -e /proc/uptime").mount(bindOf("/proc", "/proc")).ok()
}

func TestProcMustBeMountedOnADirectory(t *testing.T) {
	b := newBox(t).sh("true")
	must(t, os.Remove(filepath.Join(b.rootfs, "proc")))
	must(t, os.Symlink("/tmp", filepath.Join(b.rootfs, "proc")))
	contains(t, b.fails(), "filesystem proc must be mounted on an ordinary directory")
}

func TestErrorsOfMountsNameThem(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		mount specs.Mount
		want  string
	}{
		{bindOf("/does/not/exist", "/x"), "mount /does/not/exist on /x: open the source: no such file or directory"},
		{specs.Mount{Destination: "/x", Type: "inventedfs", Source: "none"}, `this kernel knows no filesystem "inventedfs"`},
		{specs.Mount{Destination: "/x", Type: "tmpfs", Source: "tmpfs", Options: []string{"invented=1"}}, "mount tmpfs on /x: tmpfs: Unknown parameter 'invented': option invented: invalid argument"},
		{specs.Mount{Destination: "/x", Type: "tmpfs", Source: "tmpfs", Options: []string{"remount", "ro"}}, "mount tmpfs on /x: no earlier mount of the spec has this destination"},
		{specs.Mount{Destination: "/etc/passwd", Type: "tmpfs", Source: "tmpfs"}, "mount tmpfs on /etc/passwd: not a directory"},
		{bindOf(dir, "/etc/passwd"), "mount " + dir + " on /etc/passwd: not a directory"},
		{bindOf(dir, "/x", "size=3"), `mounts[6]: mount ` + dir + ` on /x`},
	} {
		text := newBox(t).sh("true").mount(c.mount).fails()
		if c.want[:6] == "mounts" {
			contains(t, text, `"size=3" is not an option of a bind mount`)
			continue
		}
		contains(t, text, c.want)
	}
}

func TestSixtyMounts(t *testing.T) {
	b := newBox(t).sh("cat /proc/self/mountinfo; ls /many/59")
	source := t.TempDir()
	must(t, os.WriteFile(filepath.Join(source, "here"), nil, 0o644))
	for i := range 60 {
		b.mount(bindOf(source, fmt.Sprintf("/many/%d", i), "ro"))
	}
	out := b.ok()
	contains(t, out, "here")
	if n := strings.Count(out, " /many/"); n != 60 {
		t.Errorf("%d mounts, want 60", n)
	}
}

func TestWithoutPivotRoot(t *testing.T) {
	b := newBox(t).sh("ls /; cat /proc/self/mountinfo")
	b.request.Options = &abi.Options{NoPivotRoot: true}
	out := b.ok()
	contains(t, out, "bin\n")
	lacks(t, out, "work\n")
	lineOf(t, out, "/proc")
}

func TestIDMappedMounts(t *testing.T) {
	for _, fs := range []string{"tmpfs", "the filesystem of the temporary directory"} {
		t.Run(fs, func(t *testing.T) {
			dir := t.TempDir()
			if fs == "tmpfs" {
				must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
				defer unix.Unmount(dir, unix.MNT_DETACH)
			}
			must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
			must(t, os.Chown(filepath.Join(dir, "file"), 3, 4))
			m := bindOf(dir, "/mapped")
			m.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 5000, Size: 100}}
			m.GIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 6000, Size: 100}}
			b := newBox(t).sh("stat -c '%u:%g' /mapped/file").mount(m)
			if got := b.ok(); got != "5003:6004\n" {
				t.Errorf("owner %q", got)
			}
		})
	}
}

func TestUserNamespace(t *testing.T) {
	hidden := t.TempDir()
	must(t, os.Mkdir(filepath.Join(hidden, "volume"), 0o755))
	must(t, os.WriteFile(filepath.Join(hidden, "volume/file"), nil, 0o600))
	must(t, os.Chmod(hidden, 0o700)) // the app's root may not pass
	b := newBox(t).sh(`
		cat /proc/self/uid_map; id -u; stat -c '%n %t:%T' /dev/null /dev/zero; echo x > /dev/null
		stat -c '%u %n' /mapped/file; touch /mapped/new; cat /proc/self/mountinfo; echo a > /masked 2>&1 || true; hostname
		cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/user/max_pid_namespaces /proc/self/limits`)
	b.mount(bindOf(filepath.Join(hidden, "volume"), "/mapped", "ridmap"), bindOf(filepath.Join(hidden, "volume"), "/volume", "ro"))
	b.spec.Hostname = "inside"
	b.spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_unprivileged_port_start": "7", "user.max_pid_namespaces": "11"}
	b.spec.Linux.MaskedPaths = []string{"/proc/acpi", "/proc/timer_list"}
	b.spec.Linux.ReadonlyPaths = []string{"/proc/sys"}
	b.spec.Root.Readonly = true
	b.userNamespace(100000)
	out := b.ok()
	for _, want := range []string{"100000      65536\n", "\n0\n", "/dev/null 1:3\n", "/dev/zero 1:5\n", "0 /mapped/file\n", "inside\n", "\n7\n11\n"} {
		contains(t, out, want)
	}
	contains(t, lineOf(t, out, "/dev/null"), " - devtmpfs ")
	contains(t, lineOf(t, out, "/volume"), " ro,")
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(hidden, "volume/new"), &st))
	if st.Uid != 0 {
		t.Errorf("written through the id-mapped mount: owner %d", st.Uid)
	}
}

func TestConsoleInAUserNamespace(t *testing.T) {
	b := newBox(t).sh("tty; echo out > /dev/console").userNamespace(100000)
	b.request.Terminal = true
	r := b.run()
	if r.failure != nil || r.code != 0 {
		t.Fatalf("%+v %+v", r, r.failure)
	}
	contains(t, r.output, "/dev/pts/0")
	contains(t, r.output, "out")
}

func TestAUserNamespaceAsksTheSupervisorForLimits(t *testing.T) {
	b := newBox(t).sh("cat /proc/self/oom_score_adj; ulimit -Hn")
	b.userNamespace(100000)
	var now unix.Rlimit
	must(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now))
	b.spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 10, Hard: now.Max + 1}}
	r := b.run()
	if !r.limited {
		t.Fatalf("did not ask: %+v %+v", r, r.failure)
	}
	if r.failure != nil { // this process has no CAP_SYS_RESOURCE either
		contains(t, r.failure.Text, fmt.Sprintf("set RLIMIT_NOFILE to 10:%d: operation not permitted", now.Max+1))
		return
	}
	contains(t, r.output, fmt.Sprint(now.Max+1))
}

func TestCgroupsOnVersion1(t *testing.T) {
	const top = "/sys/fs/cgroup/pids"
	if _, err := os.Stat(top + "/tasks"); err != nil {
		t.Skip("needs cgroup version 1 with the pids controller at " + top)
	}
	var dirs []string
	for _, c := range []string{"pids", "systemd"} {
		dir := filepath.Join("/sys/fs/cgroup", c, fmt.Sprintf("test-container-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("needs a cgroup of its own: %v", err)
		}
		defer os.Remove(dir)
		dirs = append(dirs, dir)
	}
	for _, namespaced := range []bool{false, true} {
		t.Run(fmt.Sprintf("cgroup namespace %v", namespaced), func(t *testing.T) {
			b := newBox(t).sh("cat /proc/self/cgroup; grep -c . /sys/fs/cgroup/pids/tasks; ls /sys/fs/cgroup; touch /sys/fs/cgroup/x 2>&1 || true; cat /proc/self/mountinfo").mount(
				specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro", "nosuid", "noexec", "nodev", "relatime"}})
			b.request.Cgroup = &abi.Cgroup{Version: 1, Dirs: dirs}
			if namespaced {
				b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
			}
			for _, dir := range dirs {
				f, err := os.OpenFile(filepath.Join(dir, "tasks"), os.O_WRONLY, 0)
				must(t, err)
				defer f.Close()
				b.cgroups = append(b.cgroups, f)
			}
			out := b.ok()
			own := "/" + filepath.Base(dirs[0])
			if namespaced {
				own = "/"
			}
			contains(t, out, ":pids:"+own+"\n")
			contains(t, out, ":name=systemd:"+own+"\n")
			contains(t, out, "touch: /sys/fs/cgroup/x: Read-only file system")
			contains(t, lineOf(t, out, "/sys/fs/cgroup/pids"), " ro,nosuid,nodev,noexec,relatime ")
			contains(t, lineOf(t, out, "/sys/fs/cgroup/systemd"), "name=systemd")
			contains(t, out, "\n2\n") // the shell and grep, and no other process
		})
	}
}

func TestCgroupsOnVersion2(t *testing.T) {
	top := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(dir + "/cgroup.controllers"); err == nil {
			top = dir
		}
	}
	own := filepath.Join(top, fmt.Sprintf("test-container-%d", os.Getpid()))
	if top == "" || os.Mkdir(own, 0o755) != nil {
		t.Skip("needs a cgroup of version 2 of its own")
	}
	defer os.Remove(own)
	for _, user := range []bool{false, true} {
		t.Run(fmt.Sprintf("user namespace %v", user), func(t *testing.T) {
			b := newBox(t).sh("cat /proc/self/mountinfo").mount(
				specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro", "nosuid", "noexec", "nodev", "relatime"}})
			b.request.Cgroup = &abi.Cgroup{Version: 2, Dirs: []string{own}}
			if user {
				b.userNamespace(100000)
			}
			line := lineOf(t, b.ok(), "/sys/fs/cgroup")
			contains(t, line, " - cgroup2 ")
			contains(t, line, " ro,nosuid,nodev,noexec,relatime ")
			if user { // which may not mount it, and gets a bind mount of its own
				contains(t, line, filepath.Base(own))
			}
		})
	}
}

func TestAMountInThePlaceOfADeviceStays(t *testing.T) {
	for _, user := range []bool{false, true} {
		b := newBox(t).sh("stat -c %t:%T /dev/random; stat -c %a /dev/random").mount(
			specs.Mount{Source: "/dev/urandom", Destination: "/dev/random", Options: []string{"bind"}})
		if user {
			b.userNamespace(100000)
		}
		if got := b.ok(); got != "1:9\n666\n" {
			t.Errorf("user namespace %v: %q", user, got)
		}
	}
}

func TestPropagationOfTheRoot(t *testing.T) {
	for propagation, want := range map[string]string{"shared": "shared:", "private": " - ", "unbindable": "unbindable", "rslave": " - "} {
		b := newBox(t).sh("cat /proc/self/mountinfo")
		b.spec.Linux.RootfsPropagation = propagation
		contains(t, lineOf(t, b.ok(), "/"), want)
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	lacks(t, string(b), "TestPropagationOfTheRoot")
}

// Without MS_BIND the kernel would change the file system of the host, for everybody.
func TestARemountOfABindMountLeavesTheHostsFileSystemAlone(t *testing.T) {
	for _, kind := range []string{"bind", "rbind", "none", ""} {
		volume := t.TempDir()
		must(t, unix.Mount("volume", volume, "tmpfs", 0, ""))
		t.Cleanup(func() { must(t, unix.Unmount(volume, unix.MNT_DETACH)) })
		r := newBox(t).sh("cat /proc/self/mountinfo").mount(bindOf(volume, "/vol"), specs.Mount{Destination: "/vol", Type: kind, Options: []string{"remount", "ro"}}).run()
		if r.failure != nil {
			t.Fatalf("%s: init failed: %s", kind, r.failure.Text)
		}
		contains(t, lineOf(t, r.output, "/vol"), " ro,")
		must(t, os.WriteFile(filepath.Join(volume, "file"), nil, 0o644))
	}
}

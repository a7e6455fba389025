package container

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestAnAppRunsItsProgram(t *testing.T) {
	r := newBox(t).sh("echo hello; exit 3").run()
	if r.failure != nil || r.code != 3 || r.output != "hello\n" {
		t.Errorf("got %+v, %+v", r, r.failure)
	}
	if got := strings.Join(r.steps, " "); got != "ready exec" {
		t.Errorf("the supervisor was told %q", got)
	}
}

func TestAnAppIsBlockedUntilItIsStarted(t *testing.T) {
	b := newBox(t).sh("echo started")
	var exe, fds string
	b.ready = func(pid int) {
		exe, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		for _, e := range entries {
			link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
			fds += e.Name() + " " + link + "\n"
		}
	}
	contains(t, b.ok(), "started")
	contains(t, exe, ".test")
	contains(t, fds, "3 socket:")
}

func TestNoDescriptorOfInitReachesTheProgram(t *testing.T) {
	b := newBox(t).sh("ls /proc/self/fd").mount(specs.Mount{Destination: "/mnt", Type: "bind", Source: t.TempDir(), Options: []string{"rbind"}})
	if got := strings.Fields(b.ok()); len(got) > 4 { // 0 to 2, and ls's own
		t.Errorf("descriptors %v", got)
	}
}

func TestTheSuppliedFilesystemsAreMounted(t *testing.T) {
	out := newBox(t).sh("cat /proc/self/mountinfo").ok()
	for point, want := range map[string]string{
		"/proc":       " - proc proc ",
		"/dev":        "size=65536k",
		"/dev/pts":    "gid=5",
		"/dev/shm":    "nosuid,nodev,noexec",
		"/dev/mqueue": " - mqueue ",
		"/sys":        " ro,nosuid,nodev,noexec",
	} {
		contains(t, lineOf(t, out, point), want)
	}
	lacks(t, out, "/mnt")
	lacks(t, lineOf(t, out, "/"), "shared:")
}

func TestDefaultDevicesAreThere(t *testing.T) {
	b := newBox(t).sh(`
		for d in null zero full random urandom tty fifo disk; do stat -c '%n %a %t:%T %u:%g %F' /dev/$d; done
		for l in fd stdin stdout stderr ptmx; do echo $l $(readlink /dev/$l); done
		echo x > /dev/null; head -c 4 /dev/zero | wc -c 2>/dev/null || true`)
	mode := os.FileMode(0o640)
	uid, gid := uint32(7), uint32(8)
	b.spec.Linux.Devices = []specs.LinuxDevice{
		{Path: "/dev/fifo", Type: "p", FileMode: &mode},
		{Path: "/dev/disk", Type: "b", Major: 7, Minor: 9, FileMode: &mode, UID: &uid, GID: &gid},
		{Path: "/dev/full", Type: "c", Major: 1, Minor: 7, FileMode: &mode},
	}
	mask := uint32(0o77)
	b.spec.Process.User.Umask = &mask
	out := b.ok()
	for _, want := range []string{
		"/dev/null 666 1:3 0:0 character", "/dev/zero 666 1:5", "/dev/random 666 1:8",
		"/dev/urandom 666 1:9", "/dev/tty 666 5:0", "/dev/full 640 1:7",
		"/dev/fifo 640", "/dev/disk 640 7:9 7:8 block",
		"fd /proc/self/fd", "stdin /proc/self/fd/0", "stderr /proc/self/fd/2", "ptmx pts/ptmx",
	} {
		contains(t, out, want)
	}
}

func TestProcessIdentity(t *testing.T) {
	b := newBox(t).sh("id; umask; pwd; echo $HOME; cat /proc/self/status; cat /proc/self/limits")
	p := b.spec.Process
	umask := uint32(0o27)
	p.User = specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{5, 6}, Umask: &umask}
	p.Cwd = "/made/on the way"
	p.Capabilities = &specs.LinuxCapabilities{
		Bounding:    []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_RAW", "CAP_INVENTED"},
		Permitted:   []string{"CAP_CHOWN", "CAP_KILL"},
		Effective:   []string{"CAP_CHOWN", "CAP_KILL"},
		Inheritable: []string{"CAP_KILL"},
		Ambient:     []string{"CAP_KILL"},
	}
	p.NoNewPrivileges = true
	p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 64, Hard: 128}, {Type: "RLIMIT_CORE"}}
	out := b.ok()
	for _, want := range []string{
		"uid=1000", "gid=1001", "groups=5,6", "0027", "/made/on the way", "/home/user",
		"NoNewPrivs:\t1", "CapBnd:\t0000000000002021", "CapEff:\t0000000000000020",
		"CapPrm:\t0000000000000020", "CapInh:\t0000000000000020", "CapAmb:\t0000000000000020",
		"Groups:\t5 6", "Max open files            64                   128",
		"Max core file size        0                    0",
	} {
		contains(t, out, want)
	}
}

func TestRootHasExactlyItsCapabilities(t *testing.T) {
	b := newBox(t).sh("cat /proc/self/status")
	set := []string{"CAP_CHOWN", "CAP_SETUID"}
	b.spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: set, Effective: set, Permitted: set}
	out := b.ok()
	for _, want := range []string{"CapPrm:\t0000000000000081", "CapEff:\t0000000000000081", "CapBnd:\t0000000000000081", "CapInh:\t0000000000000000"} {
		contains(t, out, want)
	}
	b = newBox(t).sh("cat /proc/self/status")
	b.spec.Process.Capabilities = nil
	contains(t, b.ok(), "CapEff:\t0000000000000000")
}

func TestAnUnsetLimitOfOpenFilesIsTheSupervisors(t *testing.T) {
	out := newBox(t).sh("ulimit -Sn; ulimit -Hn").ok()
	limit := strings.Fields(out)
	var now unix.Rlimit
	must(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now))
	if now.Cur == now.Max-1 && limit[0] == fmt.Sprint(now.Cur) {
		t.Errorf("limits %v: the Go runtime's own soft limit has leaked", limit)
	}
	if limit[1] != fmt.Sprint(now.Max) {
		t.Errorf("hard limit %s, want %d", limit[1], now.Max)
	}
}

func TestRaisingALimitWithoutTheRightIsAnErrorThatNamesIt(t *testing.T) {
	var now unix.Rlimit
	must(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now))
	higher := now
	higher.Max++
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, &higher, nil) == nil {
		unix.Prlimit(0, unix.RLIMIT_NOFILE, &now, nil)
		t.Skip("this process has CAP_SYS_RESOURCE")
	}
	b := newBox(t).sh("true")
	b.spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 10, Hard: now.Max + 1}}
	contains(t, b.fails(), fmt.Sprintf("set RLIMIT_NOFILE to 10:%d: operation not permitted", now.Max+1))

	b = newBox(t).sh("ulimit -Hn")
	b.spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: now.Max, Hard: now.Max}}
	contains(t, b.ok(), fmt.Sprint(now.Max))
}

func TestOOMScore(t *testing.T) {
	b := newBox(t).sh("cat /proc/self/oom_score_adj")
	score := 500
	b.spec.Process.OOMScoreAdj = &score
	if got := strings.TrimSpace(b.ok()); got != "500" {
		t.Errorf("oom_score_adj is %s", got)
	}
}

// Docker returns 126 for an error with the words "permission denied", and 125 for one of the runtime.
func TestALowerScoreWithoutTheRightIsNoErrorOfTheProgram(t *testing.T) {
	now, err := os.ReadFile("/proc/self/oom_score_adj")
	must(t, err)
	err = adjustOOM("self", new(-1000))
	if err == nil {
		must(t, os.WriteFile("/proc/self/oom_score_adj", now, 0))
		t.Skip("this process has CAP_SYS_RESOURCE")
	}
	contains(t, err.Error(), "oom_score_adj to -1000")
	if strings.Contains(err.Error(), "permission denied") {
		t.Errorf("the error is %q", err)
	}
}

func TestMoreGroupsThanTheKernelAllowsAreAnErrorThatNamesThem(t *testing.T) {
	b := newBox(t).sh("true")
	b.spec.Process.User.AdditionalGids = make([]uint32, 70000)
	contains(t, b.fails(), "process.user.additionalGids: 70000 groups, and setgroups allows 65536")
}

func TestTheFirstOfTwoDevicesWithOnePathCounts(t *testing.T) {
	b := newBox(t).sh("stat -c %t:%T /dev/twice")
	b.spec.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/twice", Type: "c", Major: 1, Minor: 5}, {Path: "/dev//twice", Type: "c", Major: 1, Minor: 7}}
	if got := strings.TrimSpace(b.ok()); got != "1:5" {
		t.Errorf("/dev/twice is %s, want 1:5", got)
	}
}

func TestErrorsOfTheProgramComeBeforeReady(t *testing.T) {
	for _, c := range []struct {
		name, args, cwd, want string
		uid                   uint32
	}{
		{name: "not in PATH", args: "foo", want: `exec: "foo": executable file not found in $PATH`},
		{name: "missing", args: "/foo", want: `exec: "/foo": stat /foo: no such file or directory`},
		{name: "not executable", args: "/etc/passwd", want: `exec: "/etc/passwd": permission denied`},
		{name: "not for this user", args: "/private/sh", uid: 1000, want: `permission denied`},
		{name: "directory", args: "/etc", want: `exec: "/etc": is a directory`},
		{name: "below a file", args: "/etc/passwd/x", want: `exec: "/etc/passwd/x": stat /etc/passwd/x: not a directory`},
		{name: "cwd is a file", args: "/bin/true", cwd: "/etc/passwd", want: `chdir to cwd ("/etc/passwd") set in config.json failed: not a directory`},
		{name: "cwd is relative", args: "/bin/true", cwd: "tmp", want: `"tmp" is not an absolute path`},
		{name: "cwd is for root", args: "/bin/true", cwd: "/proc/1/fd/3", want: `chdir to cwd ("/proc/1/fd/3")`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, c.args)
			must(t, os.MkdirAll(filepath.Join(b.rootfs, "private"), 0o700))
			must(t, os.Symlink("/bin/busybox", filepath.Join(b.rootfs, "private/sh")))
			b.spec.Process.User.UID = c.uid
			b.spec.Process.Capabilities = nil
			if c.cwd != "" {
				b.spec.Process.Cwd = c.cwd
			}
			contains(t, b.fails(), c.want)
		})
	}
}

func TestAnExecThatFailsIsReportedAfterStart(t *testing.T) {
	b := newBox(t, "/bin/noexec")
	b.write("bin/noexec", "\x7fELF but not really")
	must(t, os.Chmod(filepath.Join(b.rootfs, "bin/noexec"), 0o755))
	r := b.run()
	if r.failure == nil || r.code != 126 {
		t.Fatalf("got %+v", r)
	}
	contains(t, r.failure.Text, "exec /bin/noexec: exec format error")
	if got := strings.Join(r.steps, " "); got != "ready exec error" {
		t.Errorf("steps %q", got)
	}
}

func TestAMissingWorkingDirectoryIsMade(t *testing.T) {
	b := newBox(t).sh("pwd; stat -c %a .")
	b.spec.Process.Cwd = "/a/b/../c"
	b.spec.Root.Readonly = true
	if got := b.ok(); got != "/a/c\n755\n" {
		t.Errorf("got %q", got)
	}
}

func TestEnvironment(t *testing.T) {
	b := newBox(t).sh("env; echo home=$HOME")
	b.spec.Process.Env = []string{"A=1", "PATH=/nowhere", "A=2", "PATH=/bin", "HOME="}
	out := b.ok()
	contains(t, out, "A=2\n")
	lacks(t, out, "A=1")
	contains(t, out, "home=/root\n")
	lacks(t, out, initEnv)
	for want, env := range map[string][]string{"/root": {"HOME=/a", "A=1", "HOME="}, "/a": {"HOME=", "HOME=/a"}} {
		b := newBox(t).sh("env | grep -c HOME; echo home=$HOME")
		b.spec.Process.Env = append(env, "PATH=/bin")
		contains(t, b.ok(), "1\nhome="+want+"\n")
	}
}

func TestNamesAndSysctls(t *testing.T) {
	b := newBox(t).sh("hostname; cat /proc/sys/kernel/domainname /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shmmni /proc/sys/fs/mqueue/msg_max")
	b.spec.Hostname, b.spec.Domainname = "box", "example.org"
	b.spec.Linux.Sysctl = map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "0",
		"kernel.shmmni":                       "1234",
		"fs/mqueue/msg_max":                   "11",
	}
	if got := b.ok(); got != "box\nexample.org\n0\n1234\n11\n" {
		t.Errorf("got %q", got)
	}
}

func TestReadonlyRootAndPaths(t *testing.T) {
	b := newBox(t).sh(`
		touch /x 2>&1 || true
		touch /dev/x 2>&1 || true
		echo 1 > /proc/sys/kernel/x 2>&1 || true
		cat /proc/self/mountinfo; ls /proc/acpi /masked; cat /masked-file
		mount -o remount,bind,rw /masked; touch /masked/x 2>&1 || true; echo end`)
	b.write("masked/secret", "x")
	b.write("masked-file", "secret")
	b.spec.Root.Readonly = true
	b.spec.Mounts[1].Options = append(b.spec.Mounts[1].Options, "ro")
	b.spec.Linux.ReadonlyPaths = []string{"/proc/sys", "/proc/nothing"}
	b.spec.Linux.MaskedPaths = []string{"/proc/acpi", "/proc/kmsg", "/sys/firmware", "/masked", "/masked-file", "/absent", "/etc/passwd/absent"}
	out := b.ok()
	contains(t, out, "touch: /x: Read-only file system")
	contains(t, out, "touch: /dev/x: Read-only file system")
	contains(t, lineOf(t, out, "/proc/sys"), " ro,")
	contains(t, lineOf(t, out, "/masked"), "- tmpfs ")
	contains(t, lineOf(t, out, "/masked"), " ro,")
	contains(t, out, "touch: /masked/x: Read-only file system")
	contains(t, lineOf(t, out, "/dev"), " ro,")
	contains(t, lineOf(t, out, "/proc/kmsg"), "/null ")
	lacks(t, out, "secret")
}

// A mount on "/" does not change the root of a process, so the root's own mount has to be read-only.
func TestTheRootIsReadOnlyIfItIsAReadonlyPath(t *testing.T) {
	for _, p := range []string{"/", "//", "/.", "/etc/..", "/to-root", "to-root", "."} {
		for _, user := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, user namespace %v", p, user), func(t *testing.T) {
				volume := t.TempDir()
				must(t, os.Chmod(volume, 0o777))
				b := newBox(t).sh(`
					if touch /x; then echo "/ is writable"; fi
					touch /dev/x /volume/x; cat /proc/self/mountinfo`).mount(bindOf(volume, "/volume"))
				must(t, os.Symlink("/", filepath.Join(b.rootfs, "to-root")))
				b.spec.Linux.ReadonlyPaths = []string{p, "/proc/sys"}
				b.spec.Linux.MaskedPaths = []string{"/proc/acpi", "/proc/timer_list"}
				if user {
					b.userNamespace(100000)
				}
				out := b.ok()
				lacks(t, out, "/ is writable")
				contains(t, lineOf(t, out, "/"), " ro,")
				contains(t, lineOf(t, out, "/volume"), " rw,") // as with root.readonly
			})
		}
	}
}

// A mask on "/" would hide nothing from the app's processes.
func TestTheRootCannotBeMasked(t *testing.T) {
	for _, p := range []string{"/", "//", "/.", "/etc/..", "/to-root", "to-root", "."} {
		b := newBox(t).sh("true")
		must(t, os.Symlink("/", filepath.Join(b.rootfs, "to-root")))
		b.spec.Linux.MaskedPaths = []string{p}
		contains(t, b.fails(), "mask "+p+": this is the app's root")
	}
}

func TestHooksOfTheContainer(t *testing.T) {
	b := newBox(t).sh("cat /left-by-hook /left-at-start")
	b.spec.Annotations = map[string]string{"k": "v"}
	script := filepath.Join(b.request.Bundle, "hook.sh")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\ncat > "+b.rootfs+"/left-by-hook; echo $1 >> "+b.rootfs+"/left-by-hook; readlink /proc/self/ns/mnt >> "+b.rootfs+"/left-by-hook; umask >> "+b.rootfs+"/left-by-hook\n"), 0o755))
	b.spec.Hooks = &specs.Hooks{
		CreateRuntime:   []specs.Hook{{Path: "/bin/of-the-supervisor"}},
		CreateContainer: []specs.Hook{{Path: script, Args: []string{"hook", "argument"}}},
		StartContainer:  []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "/bin/cat > /left-at-start"}}},
	}
	defer unix.Umask(unix.Umask(0o22))
	ran := false
	b.hooks = func(int) { ran = true }
	out := b.ok()
	if !ran {
		t.Error("the supervisor was not asked to run its hooks")
	}
	contains(t, out, "argument\n")
	contains(t, out, "\n0022\n")
	own, _ := os.Readlink("/proc/self/ns/mnt")
	lacks(t, out, own)
	var states [2]specs.State
	dec := json.NewDecoder(strings.NewReader(out))
	must(t, dec.Decode(&states[0]))
	rest := out[strings.LastIndex(out, "{\"oci"):]
	must(t, json.Unmarshal([]byte(rest), &states[1]))
	for i, want := range []specs.ContainerState{specs.StateCreating, specs.StateCreated} {
		s := states[i]
		if s.Status != want || s.ID != b.request.Container || s.Pid != 1 || s.Bundle != b.request.Bundle || s.Annotations["k"] != "v" {
			t.Errorf("state %d: %+v", i, s)
		}
	}
}

func TestAFailingHookFailsTheApp(t *testing.T) {
	b := newBox(t).sh("true")
	b.spec.Hooks = &specs.Hooks{CreateContainer: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo because; exit 9"}}}}
	text := b.fails()
	contains(t, text, "createContainer hook #0")
	contains(t, text, "exit status 9")
	contains(t, text, "because")

	one := 1
	b = newBox(t).sh("true")
	b.spec.Hooks = &specs.Hooks{CreateContainer: []specs.Hook{{Path: "/bin/sleep", Args: []string{"sleep", "100"}, Timeout: &one}}}
	contains(t, b.fails(), "did not end within 1 seconds")
}

func TestConsole(t *testing.T) {
	b := newBox(t).sh("tty; stty size 2>/dev/null || busybox stty size; stat -c '%u %a' $(tty); cat /proc/self/mountinfo; [ -t 0 ] && [ -c /dev/console ] && echo terminal; echo ctty > /dev/tty")
	b.request.Terminal = true
	b.spec.Process.ConsoleSize = &specs.Box{Height: 33, Width: 77}
	b.spec.Process.User.UID = 1000
	b.spec.Process.User.GID = 1000
	r := b.run()
	if r.failure != nil || r.code != 0 {
		t.Fatalf("%+v %+v", r, r.failure)
	}
	out := strings.ReplaceAll(r.output, "\r", "")
	for _, want := range []string{"/dev/pts/0\n", "33 77\n", "1000 620\n", "terminal\n", "ctty\n"} {
		contains(t, out, want)
	}
	contains(t, lineOf(t, out, "/dev/console"), " - devpts ")
	if got := strings.Join(r.steps, " "); got != "console ready exec" {
		t.Errorf("steps %q", got)
	}
}

func TestSchedulingAndPersonality(t *testing.T) {
	b := newBox(t).sh("busybox uname -m; busybox cut -d' ' -f18,19,41 /proc/self/stat; busybox ionice")
	b.spec.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: 5}
	b.spec.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 6}
	b.spec.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux32}
	out := b.ok()
	contains(t, out, "25 5 3\n") // kernel priority, nice, policy
	contains(t, out, "best-effort: prio 6")
	lacks(t, out, "x86_64\n")
}

func TestSeccomp(t *testing.T) {
	for _, nnp := range []bool{false, true} {
		t.Run(fmt.Sprintf("no_new_privs %v", nnp), func(t *testing.T) {
			b := newBox(t).sh("grep -E 'Seccomp:|CapEff|CapPrm|NoNewPrivs' /proc/self/status; mkdir /tmp/x 2>&1 || true")
			set := []string{"CAP_CHOWN"}
			b.spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: set, Effective: set, Permitted: set}
			b.spec.Process.NoNewPrivileges = nnp
			b.spec.Linux.Seccomp = &specs.LinuxSeccomp{
				DefaultAction: specs.ActAllow,
				Flags:         []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagLog},
				Syscalls: []specs.LinuxSyscall{
					{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno},
				},
			}
			out := b.ok()
			contains(t, out, "Seccomp:\t2")
			contains(t, out, "CapPrm:\t0000000000000001")
			contains(t, out, "CapEff:\t0000000000000001")
			contains(t, out, "Operation not permitted")
		})
	}
}

func TestAFilterThatAllowsTheGoRuntimeNothingDoesNotStopTheExec(t *testing.T) {
	b := newBox(t, "/bin/true")
	b.spec.Process.NoNewPrivileges = true
	b.spec.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActKillProcess,
		Syscalls:      []specs.LinuxSyscall{{Names: []string{"execve"}, Action: specs.ActAllow}},
	}
	r := b.run()
	// The program dies of its first system call, but it was executed.
	if r.failure != nil || r.code != -1 || r.steps[len(r.steps)-1] != "exec" {
		t.Errorf("%+v %+v", r, r.failure)
	}
}

func TestExecIntoAnApp(t *testing.T) {
	needsExec(t)
	b := newBox(t).sh("sleep 1000 & echo $$; cat; kill %1 2>/dev/null; true")
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	b.stdin = r
	b.spec.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Syscalls:      []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno}},
	}
	set := []string{"CAP_KILL"}
	proc := &specs.Process{
		Args: []string{"sh", "-c", "id -u; pwd; ls /bin/busybox; mkdir /tmp/x 2>&1; cat /proc/self/status"}, Env: []string{"PATH=/bin"}, Cwd: "/tmp",
		User:         specs.User{UID: 1000, GID: 1000},
		Capabilities: &specs.LinuxCapabilities{Bounding: set},
	}
	var got *result
	missing := *proc
	missing.Args = []string{"absent"}
	nowhere := *proc
	nowhere.Cwd = "/nowhere"
	failures := make(map[string]*result)
	b.ready = func(pid int) {
		got = b.exec(pid, proc)
		failures[`exec: "absent": executable file not found in $PATH`] = b.exec(pid, &missing)
		failures[`chdir to cwd ("/nowhere") set in config.json failed: no such file or directory`] = b.exec(pid, &nowhere)
		terminal := *proc
		terminal.Terminal = true
		terminal.Args = []string{"sh", "-c", "tty"}
		failures["terminal"] = b.exec(pid, &terminal)
		w.Close()
	}
	b.ok()
	if got.failure != nil {
		t.Fatal(got.failure.Text)
	}
	for _, want := range []string{"1000\n/tmp\n/bin/busybox\n", "Operation not permitted", "Seccomp:\t2", "CapBnd:\t0000000000000020"} {
		contains(t, got.output, want)
	}
	if s := strings.Join(got.steps, " "); s != "exec" {
		t.Errorf("steps of an exec: %q", s)
	}
	contains(t, failures["terminal"].output, "/dev/pts/0")
	delete(failures, "terminal")
	for want, r := range failures {
		if r.failure == nil {
			t.Fatalf("%q: no failure, %+v", want, r)
		}
		contains(t, r.failure.Text, want)
	}
}

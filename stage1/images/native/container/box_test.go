package container

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const initEnv = "TEST_CONTAINER_INIT"

// TestMain lets the test binary serve as the process in which Init runs, and as other
// programs.
func TestMain(m *testing.M) {
	if os.Getenv(initEnv) != "" {
		filterInit()
		Init()
	}
	if fake := os.Getenv(procfsEnv); fake != "" {
		runtime.LockOSThread()
		writeToProc(fake, os.Getenv("TEST_DIRECTORY"))
		os.Exit(0)
	}
	runReplaceRoot()
	os.Exit(wait.Run(m))
}

// box describes an app that a test makes: a spec, a rootfs with busybox, and the part of
// the supervisor that speaks with Init.
type box struct {
	t       *testing.T
	spec    *specs.Spec
	request abi.Request
	rootfs  string
	stdin   *os.File
	cgroups []*os.File
	hooks   func(pid int) // what the supervisor does at "hooks"
	ready   func(pid int) // what happens between ready and start
	enemy   *adversary    // acts while Init is at work, or a Builder
	once    bool          // the app is made in one way only, because it changes what a second one sees
	planned bool          // and that is a plan and a Builder
	aged    bool          // the kernel must look like Linux 5.14, without later calls
}

// result is the outcome of a box.
type result struct {
	output  string
	code    int
	failure *Message // what Init reported
	steps   []string // what it sent, in order
	console *os.File
	limited bool
}

func newBox(t *testing.T, args ...string) *box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces and mounts")
	}
	bundle := t.TempDir()
	// Every user may pass through, as with containerd's directories.
	for dir := bundle; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	b := &box{
		t:       t,
		spec:    defaultSpec(args),
		rootfs:  filepath.Join(bundle, "rootfs"),
		request: abi.Request{Container: t.Name(), Bundle: bundle},
	}
	b.request.Rootfs = b.rootfs
	for _, dir := range []string{"bin", "dev", "etc", "proc", "sys", "tmp"} {
		must(t, os.MkdirAll(filepath.Join(b.rootfs, dir), 0o755))
	}
	must(t, os.Chmod(filepath.Join(b.rootfs, "tmp"), 0o777|os.ModeSticky))
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("needs /bin/busybox, static")
	}
	must(t, os.WriteFile(filepath.Join(b.rootfs, "bin/busybox"), busybox, 0o755))
	for _, name := range []string{"sh", "cat", "ls", "id", "stat", "true", "grep", "pwd", "env", "readlink", "touch", "mount", "hostname", "sleep", "mkdir", "tty", "head"} {
		must(t, os.Symlink("busybox", filepath.Join(b.rootfs, "bin", name)))
	}
	b.write("etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *box) write(name, content string) {
	b.t.Helper()
	p := filepath.Join(b.rootfs, name)
	must(b.t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(b.t, os.WriteFile(p, []byte(content), 0o644))
}

func defaultSpec(args []string) *specs.Spec {
	all := abi.Capabilities()
	return &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args:         args,
			Env:          []string{"PATH=/bin:/sbin"},
			Cwd:          "/",
			Capabilities: &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
		}},
	}
}

// sh sets the app's program to a shell script.
func (b *box) sh(script string) *box {
	b.spec.Process.Args = []string{"/bin/sh", "-ec", script}
	return b
}

func (b *box) mount(m ...specs.Mount) *box {
	b.spec.Mounts = append(b.spec.Mounts, m...)
	return b
}

// userNamespace gives the app a user namespace, and a rootfs that belongs to its root.
func (b *box) userNamespace(host uint32) *box {
	m := []specs.LinuxIDMapping{{ContainerID: 0, HostID: host, Size: 65536}}
	b.spec.Linux.UIDMappings, b.spec.Linux.GIDMappings = m, m
	b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	must(b.t, filepath.Walk(b.rootfs, func(p string, _ os.FileInfo, err error) error {
		return errors.Join(err, os.Lchown(p, int(host), int(host)))
	}))
	return b
}

func (b *box) attr() *syscall.SysProcAttr {
	flags := map[specs.LinuxNamespaceType]uintptr{
		specs.PIDNamespace: unix.CLONE_NEWPID, specs.NetworkNamespace: unix.CLONE_NEWNET,
		specs.IPCNamespace: unix.CLONE_NEWIPC, specs.UTSNamespace: unix.CLONE_NEWUTS,
		specs.MountNamespace: unix.CLONE_NEWNS, specs.UserNamespace: unix.CLONE_NEWUSER,
	}
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	for _, n := range b.spec.Linux.Namespaces {
		attr.Cloneflags |= flags[n.Type]
	}
	if attr.Cloneflags&unix.CLONE_NEWUSER != 0 {
		attr.UidMappings = sysMappings(b.spec.Linux.UIDMappings)
		attr.GidMappings = sysMappings(b.spec.Linux.GIDMappings)
		attr.GidMappingsEnableSetgroups = true
		attr.Credential = &syscall.Credential{}
	}
	return attr
}

// run makes the app and waits for its end. Init makes it, and then a plan and a Builder do, if they
// can; what is seen of both has to be the same.
func (b *box) run() *result {
	b.t.Helper()
	if b.once && b.planned {
		r := b.byPlan()
		if r == nil {
			b.t.Fatal("Init would make the app")
		}
		return r
	}
	r := b.byInit()
	if b.once {
		return r
	}
	if planned := b.byPlan(); planned != nil {
		if text := planned.text(); text != r.text() {
			b.t.Errorf("by plan:\n%s\nby init:\n%s", text, r.text())
		}
	}
	return r
}

// byInit makes the app by Init and waits for its end.
func (b *box) byInit() *result {
	b.t.Helper()
	p, err := PrepareApp(AppRequest{Request: b.request, Spec: b.spec, CgroupFiles: b.cgroups})
	if err != nil {
		b.t.Fatalf("PrepareApp: %v", err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.SysProcAttr = b.attr()
	return b.execute(cmd, p)
}

func (b *box) execute(cmd *exec.Cmd, p *Prepared) *result {
	b.t.Helper()
	defer p.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(b.t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "sync"), os.NewFile(uintptr(pair[1]), "sync")
	defer ours.Close()
	plan, err := proc.Memory("plan", nil)
	must(b.t, err)
	defer plan.Close()
	config, err := p.Config()
	must(b.t, err)
	_, err = plan.Write(config)
	must(b.t, err)

	out, err := os.Create(filepath.Join(b.t.TempDir(), "output"))
	must(b.t, err)
	defer out.Close()
	cmd.Env = append(cmd.Env, initEnv+"=1")
	cmd.Stdout, cmd.Stderr = out, out
	if b.stdin != nil {
		cmd.Stdin = b.stdin
	}
	cmd.ExtraFiles = append(append([]*os.File{theirs, plan}, p.Files...), cmd.ExtraFiles...)
	if b.aged {
		cmd.Env = append(cmd.Env, agedEnv+"=1")
	}
	begin := func() func() { return func() {} }
	if b.enemy != nil {
		begin = b.enemy.intercept(b.t, cmd)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatalf("start: %v", err)
	}
	theirs.Close()
	end := begin()
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	r := &result{}
	b.converse(ours, r, p, cmd.Process.Pid)
	drained := make(chan struct{})
	go func() { // a terminal's output must be read, for the app to end
		defer close(drained)
		if r.console != nil {
			io.Copy(out, r.console) // until EIO: the last slave was closed
		}
	}()
	cmd.Wait()
	end()
	wait.For(b.t, "the end of the terminal", drained)
	r.code = cmd.ProcessState.ExitCode()
	written, err := os.ReadFile(out.Name())
	must(b.t, err)
	r.output = string(written)
	return r
}

// converse does the supervisor's part, until the exec or the end of Init.
func (b *box) converse(conn *os.File, r *result, p *Prepared, pid int) {
	b.t.Helper()
	say := func(w Word) {
		if err := proc.Send(int(conn.Fd()), Message{Word: w}.Encode()); err != nil {
			b.t.Errorf("send %s: %v", w, err)
		}
	}
	buf := make([]byte, 16384)
	for {
		n, fds, err := proc.Receive(int(conn.Fd()), buf, 1)
		if err != nil {
			return
		}
		var m Message
		must(b.t, json.Unmarshal(buf[:n], &m))
		r.steps = append(r.steps, string(m.Word))
		switch m.Word {
		case WordHooks:
			if b.hooks != nil {
				b.hooks(pid)
			}
			say(WordGo)
		case WordLimits:
			r.limited = true
			if err := p.Limit(pid); err != nil {
				r.failure = &Message{Text: err.Error()}
				conn.Close()
				return
			}
			say(WordGo)
		case WordConsole:
			r.console = os.NewFile(uintptr(fds[0]), "console")
			b.t.Cleanup(func() { r.console.Close() })
		case WordReady:
			if b.ready != nil {
				b.ready(pid)
			}
			say(WordStart)
		case WordError:
			r.failure = &m
		}
	}
}

// ok runs the app, which must succeed, and returns what it wrote.
func (b *box) ok() string {
	b.t.Helper()
	r := b.run()
	if r.failure != nil {
		b.t.Fatalf("init failed: %s", r.failure.Text)
	}
	if r.code != 0 {
		b.t.Fatalf("exit code %d, output:\n%s", r.code, r.output)
	}
	return r.output
}

// fails runs the app, which must fail before it is ready, and returns the error.
func (b *box) fails() string {
	b.t.Helper()
	if _, err := PrepareApp(AppRequest{Request: b.request, Spec: b.spec}); err != nil {
		return err.Error()
	}
	r := b.run()
	if r.failure == nil {
		b.t.Fatalf("did not fail; steps %v, output %s", r.steps, r.output)
	}
	for _, s := range r.steps {
		if s == "ready" {
			b.t.Errorf("failed after it was ready: %s", r.failure.Text)
		}
	}
	return r.failure.Text
}

// exec runs a further process in the app of which pid is the first process.
func (b *box) exec(pid int, proc *specs.Process) *result {
	b.t.Helper()
	p, err := PrepareExec(ExecRequest{Request: b.request, Process: proc, App: b.spec})
	if err != nil {
		b.t.Fatalf("PrepareExec: %v", err)
	}
	self, err := os.Open("/proc/self/exe")
	must(b.t, err)
	defer self.Close()
	number := firstFile + len(p.Files)
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(pid), "-m", "-u", "-i", "-n", "-p", "--",
		"/bin/busybox", "setsid", fmt.Sprintf("/proc/self/fd/%d", number))
	cmd.ExtraFiles = []*os.File{self}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return b.execute(cmd, p)
}

func contains(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%q is not in:\n%s", want, text)
	}
}

func lacks(t *testing.T, text, unwanted string) {
	t.Helper()
	if strings.Contains(text, unwanted) {
		t.Errorf("%q is in:\n%s", unwanted, text)
	}
}

// lineOf returns the line of the app's mountinfo for a mount point.
func lineOf(t *testing.T, mountinfo, point string) string {
	t.Helper()
	found := ""
	for line := range bytes.Lines([]byte(mountinfo)) {
		if f := strings.Fields(string(line)); len(f) > 5 && f[4] == point {
			found = string(line)
		}
	}
	if found == "" {
		t.Errorf("nothing is mounted on %s:\n%s", point, mountinfo)
	}
	return found
}

// needsExec skips a test whose app's namespaces this test binary cannot enter.
func needsExec(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("needs nsenter")
	}
	self, err := elf.Open("/proc/self/exe")
	must(t, err)
	defer self.Close()
	if slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("needs a static test binary, which one with the race detector is not")
	}
}

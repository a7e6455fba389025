package local_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// suite is what all tests share.
var suite struct {
	dir     string // private directory
	bin     string
	rootfs  string
	stage1s []string
	cgroup  string
}

func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Println("SKIP: local pods need root: apps, mounts and cgroups are real")
		os.Exit(0)
	}
	if os.Getenv(lifeVariable) != "" {
		os.Exit(oneLife())
	}
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "local:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	if suite.dir, err = os.MkdirTemp("", "rkt-test-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(suite.dir)
	if err := findPrograms(); err != nil {
		return 0, err
	}
	suite.stage1s = strings.Split("native,oci,nspawn", ",")
	if some := os.Getenv("RKT_TEST_RUNTIMES"); some != "" {
		suite.stage1s = strings.Split(some, ",")
	}
	suite.cgroup = fmt.Sprintf("rkt-test-%d-local", os.Getpid())
	suite.rootfs = filepath.Join(suite.dir, "rootfs")
	if err := writeRootfs(suite.rootfs); err != nil {
		return 0, err
	}
	code = wait.Run(m)
	removeCgroup()
	return code, nil
}

// findPrograms builds the programs and stage1s, unless RKT_TEST_BIN has those of make build: the
// guest has no compiler.
func findPrograms() (err error) {
	if bin := os.Getenv("RKT_TEST_BIN"); bin != "" {
		suite.bin, err = filepath.Abs(bin)
		return err
	}
	suite.bin = filepath.Join(suite.dir, "bin")
	for _, argv := range [][]string{
		{"go", "build", "-o", filepath.Join(suite.bin, "containerd-shim-rkt-v1"), "../../containerd-shim-rkt-v1"},
		{"go", "build", "-o", filepath.Join(suite.bin, early.ServerProgram), "../../containerd-shim-rkt-server"},
		{"go", "build", "-o", filepath.Join(suite.bin, "rktctl"), ".."},
		{"../../../scripts/stage1-images", filepath.Join(suite.bin, "stage1")},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", argv, err, out)
		}
	}
	return nil
}

// removeCgroup removes the empty parent of all pods' cgroups.
func removeCgroup() {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*/" + suite.cgroup)
	for _, dir := range append(dirs, "/sys/fs/cgroup/"+suite.cgroup) {
		_ = os.Remove(dir)
	}
}

// writeRootfs writes a root file system with the host's busybox.
func writeRootfs(dir string) error {
	for _, d := range []string{"bin", "etc", "tmp", "dev", "proc", "sys", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile("/bin/busybox")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bin/busybox"), program, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("the root of the apps needs a static busybox (Debian: busybox-static): %w", err)
	}
	for _, applet := range strings.Fields("sh sleep ip dd echo cat true rm mkdir hostname tty stty ls") {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", applet)); err != nil {
			return err
		}
	}
	return nil
}

// box is a data directory of one test.
type box struct {
	*testing.T
	*local.Store
	stage1 string
}

// newBox returns a data directory. At the end of the test nothing of its pods may be left.
func newBox(t *testing.T, stage1 string) *box {
	t.Helper()
	dir, err := os.MkdirTemp(suite.dir, "data-")
	if err != nil {
		t.Fatal(err)
	}
	b := &box{T: t, Store: openStore(dir), stage1: stage1}
	t.Cleanup(func() {
		for _, uuid := range b.uuids() {
			if p, err := b.Open(uuid); err == nil {
				if err := p.Remove(context.Background(), true); err != nil {
					t.Error(err)
				}
			}
		}
		wait.Observe(t, "nothing is left", func() (bool, string) {
			left := b.left()
			return len(left) == 0, strings.Join(left, "\n\t")
		})
	})
	return b
}

// openStore opens the store of a data directory.
func openStore(dir string) *local.Store {
	return &local.Store{
		DataDir: dir, Shim: filepath.Join(suite.bin, "containerd-shim-rkt-v1"),
		Env:          []string{"PATH=" + os.Getenv("PATH"), "RKT_DATA_DIR=" + dir},
		CgroupParent: "/" + suite.cgroup,
	}
}

// left lists what is left of the box's pods.
func (b *box) left() (left []string) {
	for _, pid := range pids() {
		environ, _ := os.ReadFile(filepath.Join("/proc", itoa(pid), "environ"))
		if strings.Contains(commandLine(pid)+string(environ), b.DataDir) {
			left = append(left, fmt.Sprintf("process %d: %s", pid, commandLine(pid)))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		b.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+b.DataDir+"/") {
			left = append(left, "mount "+line)
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		dirs, _ := filepath.Glob(pattern + suite.cgroup + "/*-*-*-*-*")
		left = append(left, dirs...)
	}
	for _, dir := range []string{"local", "pods/embryo", "pods/prepare", "pods/run", "pods/exited-garbage"} {
		entries, _ := os.ReadDir(filepath.Join(b.DataDir, dir))
		for _, e := range entries {
			left = append(left, filepath.Join(b.DataDir, dir, e.Name()))
		}
	}
	return left
}

func (b *box) uuids() []string {
	b.Helper()
	uuids, err := b.UUIDs()
	if err != nil {
		b.Fatal(err)
	}
	return uuids
}

// sandbox makes an empty pod.
func (b *box) sandbox() *pod {
	b.Helper()
	p, err := b.Create(b.Context(), local.PodConfig{Stage1: b.stage1, Injectable: true})
	if err != nil {
		b.Fatal(err)
	}
	return &pod{b, p}
}

// pod is a pod of a box.
type pod struct {
	*box
	*local.Pod
}

// config is the request for an app that runs a shell script.
func config(name, script string) local.AppConfig {
	return local.AppConfig{
		Name: name, Image: suite.rootfs, Args: []string{"sh", "-c", script},
		Env: []string{"PATH=/bin"},
	}
}

func (p *pod) add(name, script string) {
	p.Helper()
	if err := p.Pod.Add(p.Context(), config(name, script)); err != nil {
		p.Fatal(err)
	}
}

func (p *pod) start(name string) {
	p.Helper()
	if err := p.Pod.Start(p.Context(), name); err != nil {
		p.Fatal(err)
	}
}

func (p *pod) status(name string) local.AppStatus {
	p.Helper()
	st, err := p.Pod.Status(p.Context(), name)
	if err != nil {
		p.Fatal(err)
	}
	return st
}

// expect checks the state of an app.
func (p *pod) expect(name string, want local.State) local.AppStatus {
	p.Helper()
	st := p.status(name)
	if st.State != want {
		p.Fatalf("app %s is %s, want %s", name, st.State, want)
	}
	return st
}

// await waits for a state.
func (p *pod) await(name string, want local.State) local.AppStatus {
	p.Helper()
	var st local.AppStatus
	wait.Observe(p.T, "app "+name+" is "+string(want), func() (bool, string) {
		st = p.status(name)
		return st.State == want, string(st.State)
	})
	return st
}

// server returns the pid of the pod's server.
func (p *pod) server() int {
	p.Helper()
	for _, pid := range pids() {
		if line := commandLine(pid); strings.Contains(line, "containerd-shim-rkt-v1") && strings.Contains(line, p.UUID()) {
			return pid
		}
	}
	p.Fatal("the pod has no server")
	return 0
}

// killServer kills the pod's server with SIGKILL.
func (p *pod) killServer() {
	p.Helper()
	pid := p.server()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.Fatal(err)
	}
	wait.Observe(p.T, "the server has ended", func() (bool, string) {
		line := commandLine(pid)
		return !strings.Contains(line, p.UUID()), line
	})
}

// each runs a test with each stage1.
func each(t *testing.T, f func(*testing.T, *box)) {
	for _, s := range suite.stage1s {
		t.Run(s, func(t *testing.T) { f(t, newBox(t, s)) })
	}
}

// soon bounds what must be quick.
func soon() time.Duration { return 10 * time.Second * wait.Busyness() }

// pids lists the machine's processes.
func pids() (all []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			all = append(all, pid)
		}
	}
	return all
}

// commandLine returns the arguments of a process, or an empty string if it has ended.
func commandLine(pid int) string {
	line, _ := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
	return strings.ReplaceAll(string(line), "\x00", " ")
}

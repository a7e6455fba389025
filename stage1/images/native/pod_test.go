package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// The tests of this directory build the stage1's binary and call it as stage 0
// does: nothing but docs/stage1-abi.md is between them.

const (
	busybox = "/bin/busybox"
	podID   = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
)

// binary is the path of the stage1's program that TestMain has built.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv("NATIVE_TEST_MAIN") != "" {
		// The variable is never set. Without this call the program would not be part of the
		// test binary, and the go command would show a cached result for a
		// changed program.
		main()
	}
	dir, err := os.MkdirTemp("", "native-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "native")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
	if os.Getenv("RKT_TEST_PREBUILT") != "" { // where there is no Go: in a guest (make test-vm)
		build = exec.Command("cp", filepath.Join(os.Getenv("RKT_TEST_BIN"), "stage1/native/rootfs/native"), binary)
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the stage1: %v\n%s", err, out)
		os.Exit(1)
	}
	if err := os.Chmod(binary, 0o711); err != nil { // as scripts/stage1-images does
		panic(err)
	}
	code := wait.Run(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// pod is a pod directory with a supervisor.
type pod struct {
	t       *testing.T
	dir     string
	run     *exec.Cmd
	ready   abi.Ready
	ended   chan struct{}        // run has ended
	notices chan string          // closed when nobody can announce any more
	attr    *syscall.SysProcAttr // of run
}

// entrypoint is one call of an entrypoint.
type entrypoint struct {
	request abi.Request
	args    []string
	stdio   [3]*os.File // nil is /dev/null
	ctx     context.Context
}

// answer is the result of a call.
type answer struct {
	code  int
	text  string
	ready abi.Ready
}

// newPod makes a pod directory as stage 0 leaves it before run.
func newPod(t *testing.T) *pod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	if _, err := os.Stat(busybox); err != nil {
		t.Skip("needs a static busybox at " + busybox)
	}
	p := &pod{t: t, dir: t.TempDir(), ended: make(chan struct{}), notices: make(chan string, 1000)}
	rootfs := filepath.Join(p.dir, "stage1/rootfs")
	for _, d := range []string{"rkt/status", "opt/stage2"} {
		must(t, os.MkdirAll(filepath.Join(rootfs, d), 0o755))
	}
	must(t, os.Link(binary, filepath.Join(rootfs, "native")))
	for _, e := range []string{"run", "enter", "gc", "stop", "app_add", "app_start", "app_stop", "app_rm", "app_signal"} {
		must(t, os.Symlink("native", filepath.Join(rootfs, e)))
	}
	return p
}

// startPod makes a pod and waits until its supervisor is ready.
func startPod(t *testing.T) *pod {
	t.Helper()
	p := newPod(t)
	a := p.start(abi.Request{})
	if a.code != 0 {
		t.Fatalf("run: exit code %d: %s", a.code, a.text)
	}
	return p
}

// start calls run. The answer's code is 0 if it has become ready.
func (p *pod) start(r abi.Request) answer {
	t := p.t
	t.Helper()
	lock, err := os.Open(p.dir)
	must(t, err)
	errorR, errorW := pipe(t)
	readyR, readyW := pipe(t)
	noticeR, noticeW := pipe(t)
	r.Entrypoint = abi.Run
	p.run = p.command(abi.Run, "run", []string{"--net=host", "--mutable", podID}, r)
	p.run.Stdout, p.run.Stderr, p.run.SysProcAttr = errorW, errorW, p.attr
	p.run.ExtraFiles = []*os.File{errorW, readyW, lock, noticeW}
	p.run.Env = append(p.run.Env, "RKT_LOCK_FD=5", "RKT_NOTIFY_FD=6", "RKT_READY_FD=4")
	must(t, p.run.Start())
	for _, f := range []*os.File{lock, errorW, readyW, noticeW} {
		f.Close()
	}
	go func() { _ = p.run.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		_ = p.run.Process.Signal(syscall.SIGTERM) // which ends the apps, too
		select {
		case <-p.ended:
		case <-time.After(10 * time.Second):
			_ = p.run.Process.Kill()
			<-p.ended
		}
		noticeR.Close()
	})
	go func() {
		defer close(p.notices)
		for lines := bufio.NewScanner(noticeR); lines.Scan(); {
			p.notices <- lines.Text()
		}
	}()
	line, err := bufio.NewReader(readyR).ReadString('\n')
	if err != nil {
		text, _ := io.ReadAll(errorR)
		<-p.ended
		return answer{code: p.run.ProcessState.ExitCode(), text: string(text)}
	}
	must(t, json.Unmarshal([]byte(line), &p.ready))
	return answer{ready: p.ready}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command prepares the execution of an entrypoint.
func (p *pod) command(e abi.Entrypoint, file string, args []string, r abi.Request) *exec.Cmd {
	p.t.Helper()
	r.Version, r.Entrypoint, r.Pod = abi.Version, e, podID
	b, err := json.Marshal(r)
	must(p.t, err)
	f, err := os.CreateTemp(p.dir, "request-*")
	must(p.t, err)
	_, err = f.Write(b)
	must(p.t, err)
	must(p.t, f.Close())
	cmd := exec.Command(filepath.Join(p.dir, "stage1/rootfs", file), args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "RKT_STAGE1_REQUEST=" + f.Name(), "RKT_ERROR_FD=3"}
	return cmd
}

// call calls an entrypoint and waits for its end.
func (p *pod) call(e abi.Entrypoint, c entrypoint) answer {
	p.t.Helper()
	file := strings.ReplaceAll(string(e), "/", "_")
	cmd := p.command(e, file, c.args, c.request)
	errorR, errorW := pipe(p.t)
	readyR, readyW := pipe(p.t)
	cmd.ExtraFiles = []*os.File{errorW}
	if e == abi.AppAdd || e == abi.Enter {
		cmd.ExtraFiles = append(cmd.ExtraFiles, readyW)
		cmd.Env = append(cmd.Env, "RKT_READY_FD=4")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = reader(c.stdio[0]), writer(c.stdio[1]), writer(c.stdio[2])
	} else {
		cmd.Stdout, cmd.Stderr = errorW, errorW
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	errorW.Close()
	readyW.Close()
	if c.ctx != nil {
		defer context.AfterFunc(c.ctx, func() { _ = cmd.Process.Kill() })()
	}
	stop := time.AfterFunc(2*wait.Patience, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	var readers sync.WaitGroup
	var text, ready []byte
	readers.Go(func() { text, _ = io.ReadAll(errorR) })
	readers.Go(func() { ready, _ = io.ReadAll(readyR) })
	err := cmd.Wait()
	readers.Wait()
	a := answer{text: strings.TrimSpace(string(text))}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		a.code = exit.ExitCode()
	} else if err != nil {
		p.t.Error(err)
	}
	if len(ready) > 0 {
		if err := json.Unmarshal(ready, &a.ready); err != nil {
			p.t.Errorf("%s: ready line %q: %v", e, ready, err)
		}
	}
	return a
}

// A nil *os.File in an interface is not a nil interface.
func reader(f *os.File) io.Reader {
	if f == nil {
		return nil
	}
	return f
}

func writer(f *os.File) io.Writer {
	if f == nil {
		return nil
	}
	return f
}

// do calls an entrypoint of an app.
func (p *pod) do(e abi.Entrypoint, app string) answer {
	p.t.Helper()
	return p.call(e, entrypoint{request: abi.Request{App: app}})
}

// expect is do, with an answer that must come.
func (p *pod) expect(code int, e abi.Entrypoint, app string) answer {
	p.t.Helper()
	a := p.do(e, app)
	if a.code != code {
		p.t.Errorf("%s of %s: exit code %d (%s), want %d", e, app, a.code, a.text, code)
	}
	return a
}

// request makes the request of app/add for a program of busybox.
func (p *pod) request(app string, args ...string) abi.Request {
	p.t.Helper()
	bundle := filepath.Join(p.dir, "bundles", app)
	root := filepath.Join(bundle, "rootfs")
	for _, d := range []string{"bin", "proc", "tmp", "dev"} {
		must(p.t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	for _, d := range []string{p.dir, filepath.Dir(p.dir), filepath.Join(p.dir, "bundles"), bundle, root} {
		must(p.t, os.Chmod(d, 0o755)) // a mapped root passes through
	}
	target := filepath.Join(root, "bin/busybox")
	b, err := os.ReadFile(busybox)
	must(p.t, err)
	must(p.t, os.WriteFile(target, b, 0o755))
	for _, tool := range []string{"sh", "sleep", "true", "cat", "id", "mkdir", "ls", "tr"} {
		must(p.t, os.Symlink("busybox", filepath.Join(root, "bin", tool)))
	}
	return p.asks(app, spec(args...))
}

func spec(args ...string) *specs.Spec {
	return &specs.Spec{
		Version: "1.2.0",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=755"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
		}},
	}
}

// asks makes the request of app/add with a spec.
func (p *pod) asks(app string, s *specs.Spec) abi.Request {
	p.t.Helper()
	raw, err := json.Marshal(s)
	must(p.t, err)
	bundle := filepath.Join(p.dir, "bundles", app)
	return abi.Request{App: app, Container: "ctr-" + app, Bundle: bundle, Rootfs: filepath.Join(bundle, "rootfs"), Spec: raw}
}

// respec changes the spec of a request.
func respec(t *testing.T, r *abi.Request, change func(*specs.Spec)) {
	t.Helper()
	var s specs.Spec
	must(t, json.Unmarshal(r.Spec, &s))
	change(&s)
	raw, err := json.Marshal(s)
	must(t, err)
	r.Spec = raw
}

// add calls app/add, which must succeed.
func (p *pod) add(r abi.Request, stdio ...*os.File) int {
	p.t.Helper()
	c := entrypoint{request: r}
	copy(c.stdio[:], stdio)
	a := p.call(abi.AppAdd, c)
	if a.code != 0 || a.ready.PID == 0 {
		p.t.Fatalf("app/add: exit code %d, ready %+v: %s", a.code, a.ready, a.text)
	}
	return a.ready.PID
}

// enter calls enter with a program of busybox.
func (p *pod) enter(app, exec string, stdio [3]*os.File, args ...string) answer {
	p.t.Helper()
	raw, err := json.Marshal(specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"}})
	must(p.t, err)
	return p.call(abi.Enter, entrypoint{
		request: abi.Request{App: app, Exec: exec, Container: "ctr-" + app, Process: raw, Bundle: filepath.Join(p.dir, "bundles", app)},
		args:    append([]string{"--pid=" + strconv.Itoa(p.ready.PID), "--appname=" + app, "--"}, args...),
		stdio:   stdio,
	})
}

// notice waits for the next notice.
func (p *pod) notice() string {
	p.t.Helper()
	n := wait.For(p.t, "a notice", p.notices)
	if n == "" {
		p.t.Fatal("the supervisor has died")
	}
	return n
}

// exited waits for the notice of an exit and checks its record.
func (p *pod) exited(app, exec string, code, signal int) {
	p.t.Helper()
	want := strings.TrimSpace("exit " + app + " " + exec)
	if n := p.notice(); n != want {
		p.t.Errorf("notice %q, want %q", n, want)
	}
	s, err := abi.ReadStatus(filepath.Join(p.dir, abi.StatusDir), app, exec)
	if err != nil {
		p.t.Fatal(err)
	}
	if s.Code != code || s.Signal != signal || time.Since(s.Time) > time.Hour {
		p.t.Errorf("%s is recorded as %+v, want code %d, signal %d", want, s, code, signal)
	}
}

// over waits for the end of the supervisor.
func (p *pod) over() {
	p.t.Helper()
	wait.For(p.t, "the end of the supervisor", p.ended)
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(b, []byte(") Z "))
}

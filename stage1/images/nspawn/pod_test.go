package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

const (
	busybox = "/bin/busybox"
	podID   = "7b2e4c6a-1d35-4f08-9c21-5e6f70819203"
)

// children is the bookkeeping of the test process, and imageDir the image as `make
// build` makes it.
var (
	children *proc.Children
	imageDir string
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nspawn-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	imageDir = filepath.Join(dir, "nspawn")
	build := exec.Command("../../../scripts/stage1-images", dir)
	if os.Getenv("RKT_TEST_PREBUILT") != "" { // in a guest without Go (make test-vm)
		build = exec.Command("cp", "-a", filepath.Join(os.Getenv("RKT_TEST_BIN"), "stage1/nspawn"), dir)
	}
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s", err, out)
		return 1
	}
	if err := proc.SetSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	children = proc.NewChildren()
	return wait.Run(m, children.Close)
}

// testPod is a pod. When the test ends, nothing of it may be left.
type testPod struct {
	*stage1.Stage1
	t    *testing.T
	ctx  context.Context
	dir  string
	root string // of all apps
	sup  *pod.Supervisor
}

func startPod(t *testing.T) *testPod {
	t.Helper()
	p := newPod(t)
	p.run()
	return p
}

func newPod(t *testing.T) *testPod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	for _, program := range []string{busybox, program} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	store, err := image.OpenStore(t.TempDir())
	must(t, err)
	image, err := store.Image(t.Context(), imageDir, "")
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 4*wait.Patience)
	t.Cleanup(cancel)
	p := &testPod{Stage1: stage1.New(image, "nspawn", children), t: t, ctx: ctx, dir: filepath.Join(t.TempDir(), podID), root: t.TempDir()}
	for _, d := range []string{"bin", "proc", "dev"} {
		must(t, os.Mkdir(filepath.Join(p.root, d), 0o755))
	}
	b, err := os.ReadFile(busybox)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(p.root, "bin/busybox"), b, 0o755))
	must(t, os.Symlink("busybox", filepath.Join(p.root, "bin/sh")))
	must(t, os.MkdirAll(p.dir, 0o750))
	must(t, p.Attach(p.dir))
	t.Cleanup(p.leave)
	return p
}

func (p *testPod) run() {
	p.t.Helper()
	lock, err := os.Open(p.dir)
	must(p.t, err)
	defer lock.Close()
	must(p.t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	p.sup, err = p.Run(p.ctx, p.call(abi.Run, ""), lock)
	must(p.t, err)
	p.t.Cleanup(func() { p.sup.Notices.Close() })
}

// leave ends the pod as stage 0 does.
func (p *testPod) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	defer cancel()
	if p.sup != nil {
		must(p.t, p.Invoke(ctx, p.call(abi.Stop, "")))
		select {
		case <-p.sup.Done:
		case <-ctx.Done():
			_ = p.sup.Kill()
			p.t.Error("the supervisor goes on")
		}
	}
	must(p.t, p.Invoke(ctx, p.call(abi.GC, "")))
	must(p.t, p.Detach(p.dir))
	if left := directories(p.t); len(left) > 0 {
		p.t.Errorf("directories are left: %v", left)
	}
}

// directories lists the directories of the pod's containers: those that systemd-nspawn has
// made, and its cgroups.
func directories(t *testing.T) (all []string) {
	t.Helper()
	places := []string{propagated}
	if root := unifiedRoot(); root != "" {
		own, err := ownCgroup("")
		must(t, err)
		places = append(places, filepath.Join(root, own), filepath.Join(cgroupRoot, "systemd", own))
	}
	for _, dir := range places {
		left, err := filepath.Glob(filepath.Join(dir, "rkt-"+podID+"-*"))
		must(t, err)
		all = append(all, left...)
	}
	return all
}

func (p *testPod) call(e abi.Entrypoint, app string) pod.Call {
	c := pod.Call{Dir: p.dir, Request: abi.Request{Entrypoint: e, Pod: podID, App: app}}
	if app != "" {
		c.Request.Container = "C_" + app + ".1"
	}
	if p.sup != nil {
		c.Leader = p.sup.Leader.PID
	}
	return c
}

// add calls app/add for a shell script. It returns the process and a file, which has the
// script's output when the app was started and has ended.
func (p *testPod) add(app string, change func(*specs.Spec), script string) (*pod.Process, *os.File, error) {
	p.t.Helper()
	s := &specs.Spec{
		Version: "1.2.0",
		Root:    &specs.Root{Path: p.root},
		Process: &specs.Process{Args: []string{"sh", "-c", script}, Cwd: "/", Env: []string{"PATH=/bin"}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=755"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
		}},
	}
	if change != nil {
		change(s)
	}
	raw, err := json.Marshal(s)
	must(p.t, err)
	bundle := p.t.TempDir()
	must(p.t, os.WriteFile(filepath.Join(bundle, "config.json"), raw, 0o600))
	c := p.call(abi.AppAdd, app)
	c.Request.Bundle, c.Request.Rootfs = bundle, p.root
	c.Spec, err = spec.Read[specs.Spec](raw)
	must(p.t, err)
	out, err := os.CreateTemp(p.t.TempDir(), "out")
	must(p.t, err)
	p.t.Cleanup(func() { out.Close() })
	defer children.Expect()()
	q, err := p.Add(p.ctx, c, [3]*os.File{nil, out, out})
	return q, out, err
}

// says runs a script in an app and returns what it has written.
func (p *testPod) says(app string, change func(*specs.Spec), script string) string {
	p.t.Helper()
	_, out, err := p.add(app, change, script)
	must(p.t, err)
	must(p.t, p.Invoke(p.ctx, p.call(abi.AppStart, app)))
	p.awaitEnd(app)
	b, err := os.ReadFile(out.Name())
	must(p.t, err)
	return string(b)
}

// awaitEnd returns once the end of an app is recorded.
func (p *testPod) awaitEnd(app string) {
	p.t.Helper()
	status := filepath.Join(p.dir, abi.StatusDir, app)
	wait.Until(p.t, "the end of app "+app, func() bool { _, err := os.Stat(status); return err == nil })
}

// fails expects an app/add to fail with an exit code and some words in its error.
func (p *testPod) fails(code int, words string, change func(*specs.Spec)) {
	p.t.Helper()
	_, _, err := p.add("bad", change, "true")
	var e *stage1.EntrypointError
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Text, words) {
		p.t.Errorf("%v, want exit code %d with %q", err, code, words)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Package oci holds the tests of the stage1 image oci: its scripts, called by
// package stage1 as stage 0 calls them, around the OCI runtime of this machine.
package oci

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
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

const (
	busybox  = "/bin/busybox"
	podID    = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	stateDir = "stage1/rootfs/rkt/oci"
)

// children reaps the processes of the test process. A process can have only one.
var children *proc.Children

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if err := proc.SetSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	children = proc.NewChildren()
	return wait.Run(m, children.Close)
}

// testPod is a pod directory with the stage1 attached and, after run, a
// supervisor. When the test ends nothing of it may be left.
type testPod struct {
	*stage1.Stage1
	t        *testing.T
	dir      string
	root     string // of all apps
	sup      *pod.Supervisor
	cgroups  string // parent of the apps' cgroups, below the root of each hierarchy
	patience context.Context
}

// newPod makes a pod that does not run yet, in a directory that may have a long
// path.
func newPod(t *testing.T, below string) *testPod {
	t.Helper()
	return newPodOf(t, below, imageDir(t))
}

// newPodOf is newPod of an image that the test has changed.
func newPodOf(t *testing.T, below, dir string) *testPod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	for _, program := range []string{busybox, "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	store, err := image.OpenStore(t.TempDir())
	must(t, err)
	image, err := store.Image(t.Context(), dir, "")
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	t.Cleanup(cancel)
	p := &testPod{
		Stage1: stage1.New(image, "oci", children), t: t, dir: filepath.Join(t.TempDir(), below, podID), root: rootfs(t),
		cgroups: fmt.Sprintf("/rkt-oci-test-%d", os.Getpid()), patience: ctx,
	}
	must(t, os.MkdirAll(p.dir, 0o750))
	must(t, p.Attach(p.dir))
	t.Cleanup(p.leave)
	return p
}

// startPod makes a pod that runs.
func startPod(t *testing.T) *testPod {
	t.Helper()
	p := newPod(t, "")
	p.run()
	return p
}

// imageDir makes the image as scripts/stage1-images does.
func imageDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "rootfs"), os.DirFS("rootfs")))
	for _, d := range []string{"rootfs/opt/stage2", "rootfs/rkt"} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for to, from := range map[string]string{"manifest": "manifest", "rootfs/features.json": "features.json"} {
		b, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, to), b, 0o644))
	}
	return dir
}

// rootfs makes a root with the tools of busybox.
func rootfs(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{"bin", "proc", "dev", "tmp"} {
		must(t, os.Mkdir(filepath.Join(root, d), 0o755))
	}
	b, err := os.ReadFile(busybox)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(root, "bin/busybox"), b, 0o755))
	for _, tool := range []string{"sh", "sleep", "true", "cat", "id", "mkdir", "ls", "readlink"} {
		must(t, os.Symlink("busybox", filepath.Join(root, "bin", tool)))
	}
	must(t, os.WriteFile(filepath.Join(root, "bin/data"), nil, 0o644))
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run calls run, with the lock.
func (p *testPod) run() {
	p.t.Helper()
	lock, err := os.Open(p.dir)
	must(p.t, err)
	defer lock.Close()
	must(p.t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	p.sup, err = p.Run(p.patience, p.call(abi.Run, ""), lock)
	must(p.t, err)
	p.t.Cleanup(func() { p.sup.Notices.Close() })
}

// call returns the fields that all calls have.
func (p *testPod) call(e abi.Entrypoint, app string) pod.Call {
	c := pod.Call{Dir: p.dir, Request: abi.Request{Entrypoint: e, Pod: podID, App: app}}
	if app != "" {
		c.Request.Container = container(app)
	}
	if p.sup != nil {
		c.Leader = p.sup.Leader.PID
	}
	return c
}

// container returns containerd's id of an app. It is not a valid app name.
func container(app string) string { return "C_" + app + ".1" }

// expect calls an entrypoint, which must end with a code, and returns its words.
func (p *testPod) expect(code int, e abi.Entrypoint, app string) string {
	p.t.Helper()
	return expectCode(p.t, string(e)+" "+app, code, p.Invoke(p.patience, p.call(e, app)))
}

func expectCode(t *testing.T, what string, code int, err error) string {
	t.Helper()
	var e *stage1.EntrypointError
	switch {
	case err == nil && code == 0:
	case err == nil:
		t.Errorf("%s: success, want exit code %d", what, code)
	case !errors.As(err, &e):
		t.Errorf("%s: %v", what, err)
	case e.Code != code:
		t.Errorf("%s: exit code %d, want %d: %s", what, e.Code, code, e.Text)
	default:
		return e.Text
	}
	return ""
}

// apps lists the stage1's directories of apps.
func (p *testPod) apps() []string {
	p.t.Helper()
	var names []string
	entries, err := os.ReadDir(filepath.Join(p.dir, stateDir, "apps"))
	if !errors.Is(err, os.ErrNotExist) {
		must(p.t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// over waits for the end of the supervisor.
func (p *testPod) over() {
	p.t.Helper()
	wait.For(p.t, "the end of the supervisor", p.sup.Done)
}

// leave ends the pod as stage 0 does, and looks for remains. The cgroups of
// its apps have been removed by their own cleanups.
func (p *testPod) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	p.patience = ctx // the test may have used its own up
	if p.sup != nil {
		defer func() { _ = p.sup.Kill() }()
		p.expect(0, abi.Stop, "")
		p.over()
	}
	p.expect(0, abi.GC, "")
	if left := p.apps(); len(left) > 0 {
		p.t.Errorf("state of %v is left", left)
	}
	must(p.t, p.Detach(p.dir))
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		dirs, _ := filepath.Glob(pattern + p.cgroups)
		for _, d := range dirs {
			if err := os.Remove(d); err != nil {
				p.t.Errorf("cgroup is left: %v", err)
			}
		}
	}
	for _, q := range processesWith(p.dir) {
		p.t.Errorf("process is left: %s", q)
	}
}

// processesWith lists processes with a word in their command lines.
func processesWith(word string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), word) {
			found = append(found, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// process is one that the stage1 has made, and left to this one.
type process struct {
	*pod.Process
	exit chan abi.Status
}

// testApp is an app, from before its app/add.
type testApp struct {
	*process // since app/add
	p        *testPod
	name     string
	group    *cgroup.Group
	call     pod.Call // of app/add
}

// read returns a spec, or the process of an exec, as a client sends it.
func read[T any](t *testing.T, s *T) *spec.Document[T] {
	t.Helper()
	raw, err := json.Marshal(s)
	must(t, err)
	d, err := spec.Read[T](raw)
	must(t, err)
	return d
}

// app prepares an app as stage 0 does: its cgroup and its bundle.
func (p *testPod) app(name string, change func(*specs.Spec), args ...string) *testApp {
	p.t.Helper()
	s := &specs.Spec{
		Version: "1.3.0",
		Root:    &specs.Root{Path: p.root},
		Process: &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"}},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=755"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666", "mode=0620"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
		}},
	}
	if change != nil {
		change(s)
	}
	g, err := cgroup.Maker{}.Create(cgroup.Path{Spec: p.cgroups + "/" + name}, s.Linux.Resources)
	must(p.t, err)
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
		defer cancel()
		if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
			p.t.Error(err)
		}
	})
	s.Linux.CgroupsPath = g.Path()
	app := read(p.t, s)
	bundle := p.t.TempDir()
	must(p.t, os.WriteFile(filepath.Join(bundle, "config.json"), app.Text, 0o600))

	c := p.call(abi.AppAdd, name)
	c.Request.Bundle, c.Request.Rootfs, c.Spec, c.Request.Cgroup = bundle, p.root, app, g.ABI()
	c.Request.Terminal = s.Process.Terminal
	return &testApp{p: p, name: name, group: g, call: c}
}

// tryAdd calls app/add, and waits for the app's end as stage 0 does.
func (a *testApp) tryAdd(ctx context.Context, stdio ...*os.File) error {
	a.p.t.Helper()
	defer children.Expect()()
	var files [3]*os.File
	copy(files[:], stdio)
	q, err := a.p.Add(ctx, a.call, files)
	if err != nil {
		return err
	}
	a.process = adopt(a.p.t, q)
	return nil
}

// adopt starts to wait for a process that has lost its parent. The process may have ended,
// so the caller must have called Expect before it was made.
func adopt(t *testing.T, q *pod.Process) *process {
	t.Helper()
	if q.Recorder != pod.RecordedByStage0 {
		t.Errorf("the exit of process %d is for %s to record", q.PID, q.Recorder)
	}
	p := &process{q, make(chan abi.Status, 1)}
	must(t, children.Adopt(q.PID, q.StartTime, nil, func(e proc.Exit) { p.exit <- abi.Status(e) }))
	return p
}

// add calls app/add, which must succeed.
func (a *testApp) add(stdio ...*os.File) *testApp {
	a.p.t.Helper()
	must(a.p.t, a.tryAdd(a.p.patience, stdio...))
	return a
}

// start calls add and app/start.
func (a *testApp) start(stdio ...*os.File) *testApp {
	a.p.t.Helper()
	a.add(stdio...)
	a.p.expect(0, abi.AppStart, a.name)
	return a
}

// ends waits for a process's end.
func (q *process) ends(t *testing.T, code int) {
	t.Helper()
	if st := wait.For(t, "the end of the process", q.exit); st.Code != code {
		t.Errorf("exit code %d, want %d", st.Code, code)
	}
}

// tryEnter calls enter.
func (a *testApp) tryEnter(id string, change func(*specs.Process), stdout *os.File, args ...string) (*process, error) {
	a.p.t.Helper()
	s := &specs.Process{Args: args, Cwd: "/", Env: []string{"PATH=/bin"}}
	if change != nil {
		change(s)
	}
	c := a.p.call(abi.Enter, a.name)
	c.Request.Exec, c.Process, c.Request.Bundle, c.Request.Cgroup = id, read(a.p.t, s), a.call.Request.Bundle, a.group.ABI()
	c.Request.Terminal = s.Terminal
	defer children.Expect()()
	q, err := a.p.Enter(a.p.patience, c, [3]*os.File{nil, stdout})
	if err != nil {
		return nil, err
	}
	return adopt(a.p.t, q), nil
}

// enter calls enter, which must succeed.
func (a *testApp) enter(id string, change func(*specs.Process), stdout *os.File, args ...string) *process {
	a.p.t.Helper()
	q, err := a.tryEnter(id, change, stdout, args...)
	must(a.p.t, err)
	return q
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

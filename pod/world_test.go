package pod

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestMain(m *testing.M) {
	if pid := os.Getenv(tracedVariable); pid != "" {
		trace(pid)
	}
	os.Exit(wait.Run(m))
}

// world is a pod with its fakes.
type world struct {
	*Pod
	t      *testing.T
	stage1 *fakeStage1
	events *recorder
	data   string

	resources  string // of apps: `,"resources":{…}`
	checkpoint string // that apps are restored from
	sharedPIDs bool   // apps have no PID namespace of their own

	client context.Context // of the client that creates, if it is not the test's
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: pods have cgroups")
	}
	w := &world{t: t, events: &recorder{more: make(chan struct{}, 1)}, data: filepath.Join(t.TempDir(), "rkt")}
	children := proc.NewChildren()
	w.stage1 = newFakeStage1(children)
	store, err := disk.OpenStore(w.data)
	if err != nil {
		t.Fatal(err)
	}
	w.Pod = New(PodConfig{
		Store:    store,
		Key:      disk.Key{Daemon: "/run/test.sock", Namespace: "rkt-pod-test-" + strconv.Itoa(os.Getpid()), Sandbox: "sandbox"},
		Children: children,
		Events:   w.events,
		OpenStage1: func(context.Context) (Stage1, error) {
			return w.stage1, nil
		},
	})
	t.Cleanup(func() {
		// The last app has gone, and the cgroup that held its cgroup is ours too.
		left, _ := filepath.Glob("/sys/fs/cgroup/*/" + w.cfg.Key.Namespace)
		for _, dir := range append(left, "/sys/fs/cgroup/"+w.cfg.Key.Namespace) {
			if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
				t.Errorf("cgroup left: %v", err)
			}
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.Close(ctx); err != nil {
			t.Errorf("close the pod: %v", err)
		}
		if err := children.Close(ctx); err != nil {
			t.Errorf("children left: %v", err)
		}
	})
	return w
}

// create makes an app that will run a script.
func (w *world) create(id, script string) (Status, error) {
	w.t.Helper()
	w.stage1.script(id, script)
	bundle := filepath.Join(w.t.TempDir(), id)
	if err := os.MkdirAll(filepath.Join(bundle, "rootfs"), 0o711); err != nil {
		w.t.Fatal(err)
	}
	linux := `{"namespaces":[{"type":"pid"}]` + w.resources + `}`
	if w.sharedPIDs {
		linux = `{"namespaces":[]` + w.resources + `}`
	}
	ctx := w.client
	if ctx == nil {
		ctx = w.t.Context()
	}
	return w.CreateApp(ctx, AppConfig{
		ID: AppID(id), Bundle: bundle, Rootfs: bareRoot{}, Stdio: &noStdio{}, Checkpoint: w.checkpoint,
		Spec: readSpec(w.t, `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"},"linux":`+linux+`}`),
	})
}

func readSpec(t testing.TB, text string) *spec.App {
	t.Helper()
	s, err := ReadSpec("a", "/bundle", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readProcess(t testing.TB, text string) *spec.Process {
	t.Helper()
	p, err := ReadProcess("a", "e", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) mustCreate(id, script string) {
	w.t.Helper()
	if _, err := w.create(id, script); err != nil {
		w.t.Fatalf("create %s: %v", id, err)
	}
}

func (w *world) mustStart(id, exec string) {
	w.t.Helper()
	if _, err := w.Start(w.t.Context(), AppID(id), ExecID(exec)); err != nil {
		w.t.Fatalf("start %s %s: %v", id, exec, err)
	}
}

// mustRun makes an app that runs a script.
func (w *world) mustRun(id, script string) {
	w.t.Helper()
	w.mustCreate(id, script)
	w.mustStart(id, "")
}

// mustExec has an exec run and end with a code.
func (w *world) mustExec(id, exec string, code uint32) {
	w.t.Helper()
	w.mustAddExec(id, exec, fmt.Sprint("exit ", code))
	w.mustStart(id, exec)
	if e := w.mustWait(id, exec); e.Code != code || time.Since(e.At) > time.Minute {
		w.t.Errorf("exec %s: exit %+v, want %d", exec, e, code)
	}
}

func (w *world) mustAddExec(id, exec, script string) {
	w.t.Helper()
	w.stage1.script(id+"/"+exec, script)
	if err := w.AddExec(w.t.Context(), AppID(id), ExecConfig{ID: ExecID(exec), Process: readProcess(w.t, `{"args":["sh"],"cwd":"/"}`), Stdio: &noStdio{}}); err != nil {
		w.t.Fatalf("exec %s in %s: %v", exec, id, err)
	}
}

func (w *world) mustWait(id, exec string) Exit {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	e, err := w.Wait(ctx, AppID(id), ExecID(exec))
	if err != nil {
		w.t.Fatalf("wait for %s %s: %v", id, exec, err)
	}
	return e
}

func (w *world) mustDelete(id, exec string) Status {
	w.t.Helper()
	st, err := w.Delete(w.t.Context(), AppID(id), ExecID(exec))
	if err != nil {
		w.t.Fatalf("delete %s %s: %v", id, exec, err)
	}
	return st
}

// podDirs lists the pod directories in a state.
func (w *world) podDirs(state string) []string {
	entries, err := os.ReadDir(filepath.Join(w.data, "pods", state))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// soon returns a context that ends when a test has waited too long.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	w.t.Cleanup(cancel)
	return ctx
}

// scriptLines is how a test waits for a line that a script writes.
func scriptLines(t *testing.T) (write string, next func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lines")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	lines := bufio.NewReader(f)
	return path, func() string {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
}

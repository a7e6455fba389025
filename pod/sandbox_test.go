package pod

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/crash"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// boxConfig is a sandbox with everything that one can have.
func boxConfig(t testing.TB, dir string) SandboxConfig {
	t.Helper()
	bundle := filepath.Join(dir, "box")
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	return SandboxConfig{
		ID: "box", Bundle: bundle, Hostname: "blue",
		Namespaces:  []abi.Namespace{{Type: "ipc"}, {Type: "uts"}},
		CgroupsPath: "/rkt-pod-test-box-" + strconv.Itoa(os.Getpid()),
		Files: []disk.SandboxFile{
			{Name: "hosts", Content: []byte("127.0.0.1 localhost\n"), Link: filepath.Join(dir, "cri/box/hosts")},
			{Name: "resolv.conf", Content: []byte("nameserver 192.0.2.1\n")},
		},
		Shm: disk.SandboxShm{Size: 1 << 20, Link: filepath.Join(dir, "cri/box/shm")},
	}
}

// sandbox makes and starts a sandbox, which the test shuts down if it does not.
func (w *world) sandbox(c SandboxConfig) SandboxStatus {
	w.t.Helper()
	if err := w.CreateSandbox(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.ShutdownSandbox(context.Background(), c.ID); err != nil && !errdefs.IsNotFound(err) {
			w.t.Errorf("shut down: %v", err)
		}
	})
	st, err := w.StartSandbox(w.t.Context(), c.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

func TestASandboxLivesFromItsStartToItsStopWhateverItsAppsDo(t *testing.T) {
	w := newWorld(t)
	st := w.sandbox(boxConfig(t, t.TempDir()))
	if st.State != SandboxReady || st.PID == 0 || st.CreatedAt.IsZero() {
		t.Fatalf("started: %+v", st)
	}
	for range 2 { // with its last app the pod does not end
		w.mustCreate("a", "exit 3")
		w.mustStart("a", "")
		if e := w.mustWait("a", ""); e.Code != 3 {
			t.Errorf("exit %+v", e)
		}
		w.mustDelete("a", "")
		if dirs := w.podDirs("run"); len(dirs) != 1 {
			t.Fatalf("pods that run: %v", dirs)
		}
	}
	if err := w.Close(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("close: %v", err)
	}
	if now, err := w.SandboxStatus("box"); err != nil || now.State != SandboxReady || now.PID != st.PID {
		t.Errorf("status %+v, %v", now, err)
	}
	if err := w.StopSandbox(t.Context(), "box", 0); err != nil {
		t.Fatal(err)
	}
	if e, err := w.WaitSandbox(t.Context(), "box"); err != nil || e.Code != 0 || e.At.IsZero() {
		t.Errorf("exit %+v, %v", e, err)
	}
	if err := w.StopSandbox(t.Context(), "box", 0); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := w.create("b", "exit 0"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("an app in a stopped sandbox: %v", err)
	}
	if err := w.ShutdownSandbox(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"embryo", "prepare", "run", "exited-garbage"} {
		if dirs := w.podDirs(state); len(dirs) != 0 {
			t.Errorf("%s still holds %v", state, dirs)
		}
	}
	if _, err := w.SandboxStatus("box"); !errdefs.IsNotFound(err) {
		t.Errorf("status of what was shut down: %v", err)
	}
}

// A Create may not have written its record yet, and so belong to no session.
func TestASandboxIsShutDownWhileAnAppIsMade(t *testing.T) {
	w := newWorld(t)
	w.sandbox(boxConfig(t, t.TempDir()))
	begun := &app{process: newProcess("a", "", nil, false, w.cfg.Events, new(outbox)), pod: w.Pod, id: "a", turn: newTurn(), execs: map[ExecID]*execution{}}
	if err := w.reserve(begun); err != nil {
		t.Fatal(err)
	}
	if err := w.ShutdownSandbox(t.Context(), "box"); err != nil {
		t.Error(err)
	}
	if _, err := w.SandboxStatus("box"); !errdefs.IsNotFound(err) {
		t.Errorf("status of what was shut down: %v", err)
	}
	if err := w.forget(t.Context(), begun); err != nil { // as its Create does, which fails now
		t.Error(err)
	}
}

func TestTheFilesOfASandboxAreThereFromItsStartToItsEnd(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	c := boxConfig(t, dir)
	w.sandbox(c)
	hosts, shm := c.Files[0].Link, c.Shm.Link
	if b, err := os.ReadFile(hosts); err != nil || string(b) != "127.0.0.1 localhost\n" {
		t.Errorf("hosts: %q, %v", b, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks*uint64(st.Bsize) != 1<<20 {
		t.Errorf("shm: %+v, %v", st, err)
	}
	if err := os.WriteFile(filepath.Join(shm, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// containerd removes this directory when it starts.
	if err := os.RemoveAll(filepath.Dir(hosts)); err != nil {
		t.Fatal(err)
	}
	if err := w.LinkSandbox("box"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(shm, "x")); err != nil {
		t.Errorf("what was in shm has gone: %v", err)
	}
	if _, err := os.Stat(hosts); err != nil {
		t.Error(err)
	}
	if err := w.ShutdownSandbox(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Dir(hosts)); err == nil {
		t.Errorf("%s is left", filepath.Dir(hosts))
	}
	if left := crash.Mounts(t, w.data); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*" + c.CgroupsPath); len(left) > 0 {
		t.Errorf("cgroups left: %v", left)
	}
	if left, err := os.ReadDir(c.Bundle); err != nil || len(left) > 0 {
		t.Errorf("left in the bundle: %v, %v", left, err)
	}
}

func TestStoppingASandboxEndsItsApps(t *testing.T) {
	for name, grace := range map[string]time.Duration{"at once": 0, "with grace": 30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sandbox(boxConfig(t, t.TempDir()))
			path, next := scriptLines(t)
			w.mustCreate("a", "trap 'exit 5' TERM; echo trapped > "+path+"; while :; do sleep 0.01; done")
			w.mustStart("a", "")
			w.mustCreate("b", "exit 0") // never started
			next()
			if err := w.StopSandbox(t.Context(), "box", grace); err != nil {
				t.Fatal(err)
			}
			want := uint32(137)
			if grace > 0 {
				want = 5
			}
			if st, err := w.Status("a", ""); err != nil || st.State != Stopped || st.Exit.Code != want {
				t.Errorf("a is %+v, %v; want exit %d", st, err, want)
			}
			w.mustDelete("a", "")
			w.mustDelete("b", "")
		})
	}
}

// A client may keep a stopped sandbox for days.
func TestAStoppedSandboxHasNoSupervisor(t *testing.T) {
	w := newWorld(t)
	w.sandbox(boxConfig(t, t.TempDir()))
	w.mustCreate("a", "exit 3")
	w.mustStart("a", "")
	w.mustWait("a", "")
	for range 2 {
		if err := w.StopSandbox(t.Context(), "box", 0); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-w.stage1.done:
	default:
		t.Error("the supervisor runs")
	}
	if st, err := w.Status("a", ""); err != nil || st.State != Stopped || st.Exit.Code != 3 {
		t.Errorf("a is %+v, %v; want exit 3", st, err)
	}
	w.mustDelete("a", "")
	if w.stage1.called(abi.AppRm) {
		t.Error("app/rm was called for a stage1 that has ended")
	}
	if err := w.ShutdownSandbox(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	if stops := w.stage1.callsOf(abi.Stop); len(stops) != 1 {
		t.Errorf("stop was called %d times", len(stops))
	}
}

func TestAShutDownSandboxDeletesTheAppsThatAreLeft(t *testing.T) {
	w := newWorld(t)
	w.sandbox(boxConfig(t, t.TempDir()))
	w.mustCreate("a", "exec sleep 300")
	w.mustStart("a", "")
	if err := w.ShutdownSandbox(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	want := []string{"created a", "started a", "exited a", "deleted a"}
	if got := w.events.words(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if !w.Empty("") {
		t.Error("an app is left")
	}
}

func TestASandboxWhoseHolderDiesHasStoppedAndItsAppsAreKilled(t *testing.T) {
	w := newWorld(t)
	st := w.sandbox(boxConfig(t, t.TempDir()))
	w.mustCreate("a", "exec sleep 300")
	w.mustStart("a", "")
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e, err := w.WaitSandbox(t.Context(), "box"); err != nil || e.Code != 137 {
		t.Errorf("exit %+v, %v", e, err)
	}
	if e := w.mustWait("a", ""); e.Code != 137 {
		t.Errorf("exit of its app: %+v", e)
	}
	if now, _ := w.SandboxStatus("box"); now.State != SandboxStopped || now.PID != st.PID {
		t.Errorf("status %+v", now)
	}
	w.mustDelete("a", "")
}

func TestASandboxWhoseStage1DiesHasStopped(t *testing.T) {
	w := newWorld(t)
	st := w.sandbox(boxConfig(t, t.TempDir()))
	w.stage1.die()
	if e, err := w.WaitSandbox(t.Context(), "box"); err != nil || e.Code != 137 {
		t.Errorf("exit %+v, %v", e, err)
	}
	if _, err := proc.Open(st.PID, 0); !errors.Is(err, proc.ErrGone) {
		t.Errorf("its holder: %v", err)
	}
}

func TestTheOrderOfCallsForASandbox(t *testing.T) {
	w := newWorld(t)
	c := boxConfig(t, t.TempDir())
	ctx := t.Context()
	if _, err := w.StartSandbox(ctx, "box"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start before create: %v", err)
	}
	if err := w.CreateSandbox(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := w.CreateSandbox(ctx, c); !errdefs.IsAlreadyExists(err) {
		t.Errorf("create twice: %v", err)
	}
	if _, err := w.create("a", "exit 0"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("an app before the start: %v", err)
	}
	if _, err := w.SandboxStats("box"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("statistics before the start: %v", err)
	}
	if err := w.StopSandbox(ctx, "box", 0); err != nil {
		t.Errorf("stop before start: %v", err)
	}
	if _, err := w.StartSandbox(ctx, "box"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start after stop: %v", err)
	}
	for _, err := range []error{
		w.StopSandbox(ctx, "other", 0), w.ShutdownSandbox(ctx, "other"), w.LinkSandbox("other"),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("another sandbox: %v", err)
		}
	}
	if err := w.ShutdownSandbox(ctx, "box"); err != nil {
		t.Error(err)
	}
	if err := w.CreateSandbox(ctx, c); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("create after the end: %v", err)
	}
	other := newWorld(t)
	other.mustCreate("a", "exit 0")
	if err := other.CreateSandbox(ctx, boxConfig(t, t.TempDir())); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("create in a pod of a container: %v", err)
	}
	other.mustDelete("a", "")
}

// leaves is an act that starts a process that keeps the pod's lock and that does not
// have the pod's namespaces.
func leaves(left *abi.Ready) act {
	return func(t *fakeCall) error {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "300"}, &os.ProcAttr{Files: []*os.File{t.lock}, Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			return err
		}
		left.PID = p.Pid
		left.StartTime, err = proc.StartTime(p.Pid)
		return errors.Join(err, p.Release(), pretends(t))
	}
}

func TestASandboxThatDoesNotStartLeavesNothing(t *testing.T) {
	var left abi.Ready
	for name, break_ := range map[string]func(*world, *SandboxConfig){
		"a stage1 that fails":          func(w *world, _ *SandboxConfig) { w.stage1.on(abi.Run, fails(errors.New("no"))) },
		"a stage1 that knows no field": func(w *world, _ *SandboxConfig) { w.stage1.on(features, fails(errors.New("no"))) },
		"a stage1 that knows nothing":  func(w *world, _ *SandboxConfig) { w.stage1.on(abi.Run, pretends) },
		"one that leaves a process":    func(w *world, _ *SandboxConfig) { w.stage1.on(abi.Run, leaves(&left)) },
		"a link that is not ours": func(w *world, c *SandboxConfig) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(c.Shm.Link), 0o755), os.Mkdir(c.Shm.Link, 0o755)); err != nil {
				w.t.Fatal(err)
			}
		},
		"a user namespace of nobody": func(_ *world, c *SandboxConfig) { c.UserOf = "/nowhere" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := boxConfig(t, t.TempDir())
			break_(w, &c)
			if err := w.CreateSandbox(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if _, err := w.StartSandbox(t.Context(), "box"); err == nil {
				t.Error("it started")
			}
			// The failed start has removed them: no ShutdownSandbox follows.
			if left := crash.Mounts(t, w.data); len(left) > 0 {
				t.Errorf("mounts left: %v", left)
			}
			if left, _ := filepath.Glob("/sys/fs/cgroup/*" + c.CgroupsPath); len(left) > 0 {
				t.Errorf("cgroups left: %v", left)
			}
			if left := crash.Pods(t, w.data); len(left) > 0 {
				t.Errorf("pods left: %v", left)
			}
			if left, err := os.ReadDir(c.Bundle); err != nil || len(left) > 0 {
				t.Errorf("left in the bundle: %v, %v", left, err)
			}
			if proc.Alive(left.PID, left.StartTime) {
				t.Errorf("process %d of the stage1 lives", left.PID)
			}
			if e, err := w.WaitSandbox(t.Context(), "box"); err != nil || e.Code != 137 {
				t.Errorf("exit %+v, %v", e, err)
			}
			if err := w.StopSandbox(t.Context(), "box", 0); err != nil {
				t.Error(err)
			}
			if err := w.ShutdownSandbox(t.Context(), "box"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestASandboxThatCannotBeCreatedCanBeCreatedAgain(t *testing.T) {
	w := newWorld(t)
	c := boxConfig(t, t.TempDir())
	good := c
	c.Bundle += "/nowhere"
	if err := w.CreateSandbox(t.Context(), c); err == nil {
		t.Fatal("it was created without a bundle")
	}
	if left := crash.Pods(t, w.data); len(left) > 0 {
		t.Errorf("pods left: %v", left)
	}
	if left := crash.Mounts(t, w.data); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if err := w.StopSandbox(t.Context(), "box", 0); !errdefs.IsNotFound(err) {
		t.Errorf("stop: %v", err)
	}
	if err := w.ShutdownSandbox(t.Context(), "box"); !errdefs.IsNotFound(err) {
		t.Errorf("shut down: %v", err)
	}
	w.sandbox(good)
}

func TestWhoeverMeetsASandboxThatCannotBeCreatedIsNotHeldUp(t *testing.T) {
	w := newWorld(t)
	c := boxConfig(t, t.TempDir())
	c.Bundle += "/nowhere"
	opened, goOn := make(chan struct{}), make(chan struct{})
	open := w.cfg.OpenStage1
	w.cfg.OpenStage1 = func(ctx context.Context) (Stage1, error) {
		close(opened)
		<-goOn
		return open(ctx)
	}
	created := make(chan error, 1)
	go func() { created <- w.CreateSandbox(context.Background(), c) }()
	<-opened
	others := make(chan error, 3)
	go func() { _, err := w.StartSandbox(context.Background(), "box"); others <- err }()
	go func() { others <- w.StopSandbox(context.Background(), "box", 0) }()
	go func() { others <- w.ShutdownSandbox(context.Background(), "box") }()
	for _, call := range []string{"StartSandbox", "StopSandbox", "ShutdownSandbox"} {
		wait.Blocked(t, "pod.(*Pod)."+call, 1)
	}
	close(goOn)
	if err := <-created; err == nil {
		t.Error("it was created without a bundle")
	}
	for range cap(others) {
		wait.For(t, "the return of the others", others)
	}
	if left := crash.Pods(t, w.data); len(left) > 0 {
		t.Errorf("pods left: %v", left)
	}
}

func TestAStopEndsAStartThatHangs(t *testing.T) {
	w := newWorld(t)
	w.stage1.on(abi.Run, hangs)
	if err := w.CreateSandbox(t.Context(), boxConfig(t, t.TempDir())); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() {
		_, err := w.StartSandbox(context.Background(), "box")
		started <- err
	}()
	wait.Until(t, "run is called", func() bool { return w.stage1.called(abi.Run) })
	if err := w.StopSandbox(w.soon(), "box", 0); err != nil {
		t.Error(err)
	}
	if err := <-started; err == nil {
		t.Error("it started")
	}
	if err := w.ShutdownSandbox(w.soon(), "box"); err != nil {
		t.Error(err)
	}
}

func TestStatisticsOfASandboxAreThoseOfItsParent(t *testing.T) {
	w := newWorld(t)
	c := boxConfig(t, t.TempDir())
	parent := "/" + w.cfg.Key.Namespace + "/pod"
	c.CgroupParent, c.CgroupsPath = parent, parent+"/box"
	w.sandbox(c)
	st, err := w.SandboxStats("box")
	if err != nil || st.Pids.Current != 1 {
		t.Errorf("%+v, %v", st.Stats, err)
	}
	if err := w.ShutdownSandbox(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*" + parent)
	for _, dir := range append(left, "/sys/fs/cgroup"+parent) {
		if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
			t.Errorf("what is left in the parent: %v", err)
		}
	}
}

// A virtual machine has the namespaces inside, and its process on the host has none of them.
func TestAHolderWithNamespacesOfItsOwnIsNotChecked(t *testing.T) {
	w := newWorld(t)
	w.stage1.own = []abi.Own{abi.OwnNamespaces}
	w.stage1.on(abi.Run, pretends)
	w.stage1.on(features, fails(errors.New("the spec of the holder is checked")))
	c := boxConfig(t, t.TempDir())
	c.Annotations, c.Labels, c.Resources = map[string]string{"a": "1"}, map[string]string{"l": "2"}, []byte(`{"memory":{"limit":7}}`)
	w.sandbox(c)
	r := w.stage1.callsOf(abi.Run)[0]
	if r.Annotations["a"] != "1" || r.Labels["l"] != "2" || string(r.Resources) != `{"memory":{"limit":7}}` {
		t.Errorf("run is told %v, %v, %s", r.Annotations, r.Labels, r.Resources)
	}
	if err := w.ShutdownSandbox(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
}

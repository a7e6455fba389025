package view

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

// world is a data directory with pods of this process, which is their shim.
type world struct {
	testing.TB
	store *disk.Store
	node  *Node
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rkt")
	store, err := disk.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	node, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, store, node}
}

// process starts a process that runs until the test ends.
func (w *world) process() *proc.Process {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := proc.Open(cmd.Process.Pid, 0)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = p.Close() })
	return p
}

// end kills a process of the test.
func (w *world) end(p *proc.Process) {
	w.Helper()
	if err := p.Signal(9); err != nil {
		w.Fatal(err)
	}
	if err := p.Wait(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// pod makes a pod in the state prepare.
func (w *world) pod(sandbox string) *disk.Dir {
	w.Helper()
	d, err := w.store.Create(disk.Key{Daemon: "/run/c.sock", Namespace: "ns", Sandbox: sandbox}, disk.Stage1Record{Name: "native", Digest: "sha512-1"}, nil)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = d.Remove(context.Background()) })
	return d
}

// running makes a pod with a supervisor.
func (w *world) running(sandbox string) (*disk.Dir, *proc.Process) {
	w.Helper()
	d, sup := w.pod(sandbox), w.process()
	if err := d.Run(); err != nil {
		w.Fatal(err)
	}
	if err := d.SetSupervisor(disk.SupervisorRecord{PID: sup.PID(), StartTime: sup.StartTime()}); err != nil {
		w.Fatal(err)
	}
	return d, sup
}

// app adds an app that has no process yet.
func (w *world) app(d *disk.Dir, id string) *disk.AppDir {
	w.Helper()
	a, err := d.AddApp(id, w.TempDir(), &specs.Spec{Process: &specs.Process{Args: []string{"true"}}})
	if err != nil {
		w.Fatal(err)
	}
	return a
}

// runs gives an app a process.
func (w *world) runs(a *disk.AppDir) *proc.Process {
	w.Helper()
	p := w.process()
	w.has(a, p)
	return p
}

// has records a process as an app's.
func (w *world) has(a *disk.AppDir, p *proc.Process) {
	w.Helper()
	if err := a.Update(func(r *disk.AppRecord) { r.PID, r.StartTime = p.PID(), p.StartTime() }); err != nil {
		w.Fatal(err)
	}
}

func (w *world) find(word string) (*Pod, *App) {
	w.Helper()
	p, a, err := w.node.Find(word)
	if err != nil {
		w.Fatal(err)
	}
	return p, a
}

// change replaces text in a file of a pod.
func (w *world) change(d *disk.Dir, name, old, new string) {
	w.Helper()
	path := filepath.Join(d.Path(), name)
	text, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	changed := strings.Replace(string(text), old, new, 1)
	if changed == string(text) {
		w.Fatalf("%s has no %s: %s", path, old, text)
	}
	if err := os.WriteFile(path, []byte(changed), 0o640); err != nil {
		w.Fatal(err)
	}
}

// exits records the exit of an app.
func (w *world) exits(d *disk.Dir, app, exec string, exit abi.Status) {
	w.Helper()
	dir := filepath.Join(d.Path(), abi.StatusDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	if err := abi.WriteStatus(dir, app, exec, exit); err != nil {
		w.Fatal(err)
	}
}

func TestAPodIsShownInEveryState(t *testing.T) {
	w := newWorld(t)
	state := func(d *disk.Dir, want PodState, served bool) {
		t.Helper()
		p, err := w.node.Pod(d.UUID())
		if err != nil {
			t.Fatal(err)
		}
		if p.State != want || p.Served() != served || p.Dir != d.Path() || time.Since(p.Created) > time.Hour || len(p.Problems) > 0 {
			t.Errorf("want %s: %+v", want, p)
		}
	}
	d := w.pod("s")
	state(d, PodPreparing, true)
	if err := d.Run(); err != nil {
		t.Fatal(err)
	}
	state(d, PodPreparing, true)
	sup := w.process()
	if err := d.SetSupervisor(disk.SupervisorRecord{PID: sup.PID(), StartTime: sup.StartTime(), Leader: 77}); err != nil {
		t.Fatal(err)
	}
	state(d, PodRunning, true)
	if p, _ := w.find("s"); p.Leader != 77 || p.Supervisor.PID != sup.PID() || !p.Supervisor.Alive || p.Stage1.Name != "native" || p.Daemon != "/run/c.sock" || p.Namespace != "ns" {
		t.Errorf("%+v", p)
	}
	w.end(sup)
	state(d, PodExited, true)
	if err := d.MarkExited(); err != nil {
		t.Fatal(err)
	}
	state(d, PodDeleting, true)
}

func TestAPodWhoseShimIsDeadIsShown(t *testing.T) {
	w := newWorld(t)
	own := fmt.Sprintf(`"shim":{"pid":%d,`, os.Getpid())
	kill := func(d *disk.Dir) { w.change(d, "shim.json", own, `"shim":{"pid":99999999,`) }
	half, living, ended, empty := w.pod("half"), w.pod("living"), w.pod("ended"), w.pod("empty")
	starting := w.pod("starting")
	w.app(starting, "first")
	for _, d := range []*disk.Dir{living, ended, empty, starting} {
		if err := d.Run(); err != nil {
			t.Fatal(err)
		}
	}
	sup := w.process()
	for _, d := range []*disk.Dir{living, ended, empty} {
		start := sup.StartTime()
		if d != living {
			start++ // the pid belongs to another process now
		}
		if err := d.SetSupervisor(disk.SupervisorRecord{PID: sup.PID(), StartTime: start}); err != nil {
			t.Fatal(err)
		}
	}
	added := w.app(living, "added")
	w.runs(w.app(ended, "c"))
	for _, d := range []*disk.Dir{half, living, ended, empty, starting} {
		kill(d)
	}
	for name, want := range map[string]PodState{"half": PodAbandoned, "living": PodRunning, "ended": PodExited, "empty": PodAbandoned, "starting": PodAbandoned} {
		if p, _ := w.find(name); p.State != want || p.Served() {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, a := w.find("added"); a.State != AppAbandoned || a.Name != added.Name() {
		t.Errorf("%+v", a)
	}
	boot, err := proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	w.change(living, "shim.json", boot, "another-boot")
	if p, _ := w.find("living"); p.State != PodAbandoned || p.Supervisor.Alive {
		t.Errorf("of another boot: %+v", p)
	}
}

func TestAnAppIsShownInEveryState(t *testing.T) {
	w := newWorld(t)
	d, _ := w.running("s")
	a := w.app(d, "Some_App")
	state := func(want AppState) *App {
		t.Helper()
		_, app := w.find("Some_App")
		if app == nil || app.State != want || app.ID != "Some_App" || app.Name != a.Name() || time.Since(app.Created) > time.Hour {
			t.Fatalf("want %s: %+v", want, app)
		}
		return app
	}
	state(AppCreating)
	p := w.runs(a)
	if app := state(AppCreated); !app.Process.Alive || !app.Started.IsZero() {
		t.Errorf("%+v", app)
	}
	if err := a.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	if app := state(AppRunning); app.Started.Before(app.Created) || time.Since(app.Started) > time.Minute {
		t.Errorf("%+v", app)
	}
	at := time.Unix(1700000000, 5)
	w.exits(d, a.Name(), "e1", abi.Status{Code: 3, Time: at})
	if app := state(AppRunning); len(app.Execs) != 1 || app.Execs[0] != (Exec{"e1", Exit{3, 0, at}}) {
		t.Errorf("%+v", app.Execs)
	}
	w.end(p)
	if app := state(AppExited); app.Exit != nil {
		t.Errorf("%+v", app.Exit)
	}
	w.exits(d, a.Name(), "", abi.Status{Code: 137, Signal: 9, Time: at})
	if app := state(AppExited); app.Exit == nil || *app.Exit != (Exit{137, 9, at}) {
		t.Errorf("%+v", app.Exit)
	}
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
	if p, app := w.find("s"); app != nil || len(p.Apps) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestTheStartOfAnAppWithoutAMarkerIsInTheJournal(t *testing.T) {
	w := newWorld(t)
	d, _ := w.running("s")
	a := w.app(d, "c")
	w.runs(a)
	began := time.Now().Add(-time.Minute)
	for _, e := range []journal.Entry{
		{Time: began, Entrypoint: abi.AppStart, App: "another"},
		{Time: began, Entrypoint: abi.AppStart, App: a.Name(), Code: 1},
		{Time: began, Entrypoint: abi.AppStart, App: a.Name(), Millis: 1000},
	} {
		if _, app := w.find("c"); app.State != AppCreated {
			t.Errorf("%+v", app)
		}
		if err := journal.Append(d.Path(), e); err != nil {
			t.Fatal(err)
		}
	}
	if _, app := w.find("c"); app.State != AppRunning || !app.Started.Equal(began.Add(time.Second)) {
		t.Errorf("%+v", app)
	}
	entries, err := w.node.Journal(d.UUID())
	if err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestDamagedRecordsAreProblemsOfTheirPod(t *testing.T) {
	w := newWorld(t)
	d, _ := w.running("first")
	a, b := w.app(d, "a"), w.app(d, "b")
	other, _ := w.running("other")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(d.Path(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"appsinfo/" + a.Name() + "/app.json", abi.StatusPath(abi.StatusDir, b.Name(), ""), "sandbox.json", "shim.json"} {
		path := filepath.Join(d.Path(), name)
		saved, _ := os.ReadFile(path)
		for _, text := range []string{"", "{", "[]", `{"version": 99}`, `"x"`, "\x00"} {
			write(name, text)
			p, err := w.node.Pod(d.UUID())
			if err != nil || len(p.Problems) != 1 || !strings.Contains(p.Problems[0], name) || len(p.Apps) != 2 {
				t.Errorf("%s with %q: %+v, %v", name, text, p, err)
			}
		}
		if name == "sandbox.json" || strings.HasPrefix(name, abi.StatusDir) {
			_ = os.Remove(path)
		} else {
			write(name, string(saved))
		}
	}
	// A stage1 puts a fifo, a link or a directory in the place of a record.
	status := filepath.Join(d.Path(), abi.StatusPath(abi.StatusDir, b.Name(), ""))
	for _, make := range []string{"mkfifo", "mkdir", "ln -s /etc/passwd"} {
		if out, err := exec.Command("sh", "-c", make+` "$1"`, "sh", status).CombinedOutput(); err != nil {
			t.Fatalf("%s: %s", make, out)
		}
		p, err := w.node.Pod(d.UUID())
		if err != nil || len(p.Problems) != 1 || p.App("b").Exit != nil {
			t.Errorf("%s: %+v, %v", make, p, err)
		}
		if err := os.RemoveAll(status); err != nil {
			t.Fatal(err)
		}
	}
	if pods, err := w.node.Pods(); err != nil || len(pods) != 2 || len(pods[0].Problems)+len(pods[1].Problems) != 0 {
		t.Errorf("%v, %v", pods, err)
	}
	_ = other
}

func TestAWordNamesAPodIfNoOtherHasIt(t *testing.T) {
	w := newWorld(t)
	one, _ := w.running("web-1")
	two, _ := w.running("web-2")
	w.app(one, "web-1")
	w.app(one, "sidecar-a")
	w.app(one, "sidecar-b")
	w.app(two, "queue") // its first letter begins no UUID
	for word, want := range map[string]struct {
		pod *disk.Dir
		app string
	}{
		"web-1": {one, "web-1"}, "web-2": {two, ""}, "q": {two, "queue"}, "sidecar-a": {one, "sidecar-a"},
		one.UUID(): {one, ""}, two.UUID()[:13]: {two, ""},
	} {
		p, a := w.find(word)
		id := ""
		if a != nil {
			id = a.ID
		}
		if p.UUID != want.pod.UUID() || id != want.app {
			t.Errorf("%s names app %q of %s", word, id, p.Sandbox)
		}
	}
	for word, want := range map[string]func(error) bool{
		"web": errdefs.IsInvalidArgument, "side": errdefs.IsInvalidArgument, "": errdefs.IsInvalidArgument, "x": errdefs.IsNotFound,
	} {
		if p, _, err := w.node.Find(word); err == nil || !want(err) {
			t.Errorf("%q: %v, %v", word, p, err)
		}
	}
}

func TestANodeWithoutADataDirectoryHasNoPods(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	n, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pods, err := n.Pods(); err != nil || pods == nil || len(pods) != 0 {
		t.Errorf("%v, %v", pods, err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("a reader has made the directory: %v", err)
	}
	if _, err := n.Journal("00000000-0000-4000-8000-000000000000"); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
	if _, err := n.Pod("../x"); err == nil || errdefs.IsNotFound(err) {
		t.Error(err)
	}
}

// Pods come, move and go while they are read. A reader sees each pod whole or not at all, and
// no pod that stays is ever missing.
func TestPodsThatVanishWhileTheyAreReadAreLeftOut(t *testing.T) {
	w := newWorld(t)
	stays, _ := w.running("stays")
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				d, err := w.store.Create(disk.Key{Sandbox: fmt.Sprintf("s%d-%d", i, n)}, disk.Stage1Record{Name: "native"}, nil)
				if err == nil {
					_, err = d.AddApp("app", t.TempDir(), &specs.Spec{})
				}
				if err == nil {
					err = d.Run()
				}
				if err == nil {
					err = d.MarkExited()
				}
				if err == nil {
					err = d.Remove(context.Background())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 500 {
		pods, err := w.node.Pods()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range pods {
			found = found || p.UUID == stays.UUID()
			if len(p.Problems) > 0 {
				t.Fatalf("%+v", p)
			}
		}
		if !found {
			t.Fatal("a pod that did not change was not found")
		}
	}
	stop()
	wg.Wait()
}

package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// mustAddDebug makes the directory of a debug app, which the test ends if it does not.
func (w *world) mustAddDebug(target string) *DebugApp {
	w.t.Helper()
	d, err := w.AddDebug(AppID(target))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := d.End(context.Background()); err != nil {
			w.t.Errorf("end the debug app: %v", err)
		}
	})
	return d.(*DebugApp)
}

// createDebug makes the app of a debug app, which will run a script.
func (w *world) createDebug(d *DebugApp, script string) error {
	w.stage1.script(string(d.ID), script)
	text := `{"ociVersion":"1.1.0","process":{"args":["sh"],"cwd":"/"},"root":{"path":"rootfs"},"linux":{"namespaces":[{"type":"pid","path":"/proc/self/ns/pid"}],"cgroupsPath":"` + d.CgroupsPath + `"}}`
	return d.Create(w.soon(), DebugConfig{Spec: []byte(text), Rootfs: bareRoot{}, Stdio: &noStdio{}, Events: nothing{}})
}

// nothing ignores events.
type nothing struct{}

func (nothing) Publish(Event) {}

// mustDebug starts a debug app.
func (w *world) mustDebug(target, script string) *DebugApp {
	w.t.Helper()
	d := w.mustAddDebug(target)
	if err := w.createDebug(d, script); err != nil {
		w.t.Fatal(err)
	}
	if _, err := d.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// mustLeaveNothing checks that a debug app has left no process, cgroup and file.
func (w *world) mustLeaveNothing(d *DebugApp) {
	w.t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup" + d.CgroupsPath, "/sys/fs/cgroup/*" + d.CgroupsPath, d.Dir, w.data + "/pods/*/*/appsinfo/" + string(d.ID) + "*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			w.t.Errorf("left: %q", left)
		}
	}
	if a := d.current(); a != nil {
		if pid := a.status().PID; pid != 0 {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !errors.Is(err, fs.ErrNotExist) {
				w.t.Errorf("process %d: %v", pid, err)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.debugs) > 0 {
		w.t.Errorf("the pod has %d debug apps", len(w.debugs))
	}
}

func TestClientsSeeNothingOfADebugApp(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "exec sleep 300")
	before := len(w.events.words())
	d := w.mustDebug("a", "exit 4")
	if !strings.HasPrefix(string(d.ID), "rktctl-") || filepath.Dir(d.CgroupsPath) != "/"+w.cfg.Key.Namespace {
		t.Errorf("%s in %s", d.ID, d.CgroupsPath)
	}
	if e, err := d.Wait(w.soon()); err != nil || e.Code != 4 {
		t.Errorf("exit %+v, %v", e, err)
	}
	for what, err := range map[string]error{
		"status": second(w.Status(d.ID, "")), "wait": second(w.Wait(w.soon(), d.ID, "")), "pids": second(w.Pids(w.soon(), d.ID)),
		"delete": second(w.Delete(w.soon(), d.ID, "")), "kill": w.Kill(w.soon(), d.ID, "", 9, false), "stats": second(w.Stats(w.soon(), d.ID)),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s of a debug app: %v", what, err)
		}
	}
	if !w.Empty("a") {
		t.Error("the pod counts a debug app")
	}
	if pids, err := w.Pids(w.soon(), "a"); err != nil || len(pids) != 1 {
		t.Errorf("processes of the target: %v, %v", pids, err)
	}
	if err := d.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.mustLeaveNothing(d)
	if events := w.events.words(); len(events) != before {
		t.Errorf("events of a debug app: %v", events[before:])
	}
	w.mustKillAndDelete("a")
}

func second[T any](_ T, err error) error { return err }

// mustKillAndDelete ends an app, which has to run.
func (w *world) mustKillAndDelete(id string) {
	w.t.Helper()
	if err := w.Kill(w.t.Context(), AppID(id), "", 9, false); err != nil {
		w.t.Error(err)
	}
	w.mustWait(id, "")
	w.mustDelete(id, "")
}

func TestADebugAppEndsBeforeItsTargetIsDeleted(t *testing.T) {
	for name, reach := range map[string]func(w *world) *DebugApp{
		"prepared": func(w *world) *DebugApp { return w.mustAddDebug("a") },
		"created": func(w *world) *DebugApp {
			d := w.mustAddDebug("a")
			if err := w.createDebug(d, "exit 0"); err != nil {
				w.t.Fatal(err)
			}
			return d
		},
		"running": func(w *world) *DebugApp { return w.mustDebug("a", "sleep 300") },
		"hostile": func(w *world) *DebugApp { return w.mustDebug("a", "trap '' TERM INT; sleep 300 & sleep 300 & wait") },
		"ended": func(w *world) *DebugApp {
			d := w.mustDebug("a", "exit 0")
			_, err := d.Wait(w.soon())
			if err != nil {
				w.t.Error(err)
			}
			return d
		},
		"its stage1 hangs": func(w *world) *DebugApp {
			d := w.mustAddDebug("a")
			begun := make(chan struct{})
			w.stage1.on(abi.AppAdd, func(c *fakeCall) error {
				close(begun)
				return hangs(c)
			}, fails(nil))
			created := make(chan error, 1)
			go func() { created <- w.createDebug(d, "exit 0") }()
			w.t.Cleanup(func() {
				if err := wait.For(w.t, "create returns", created); err == nil {
					w.t.Error("a hanging create succeeded")
				}
			})
			wait.For(w.t, "app/add of the debug app", begun)
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mustRun("a", "sleep 300")
			d := reach(w)
			w.mustKillAndDelete("a")
			w.mustLeaveNothing(d)
			if _, err := d.Start(t.Context()); err == nil {
				t.Error("started after its end")
			}
			if err := w.createDebug(d, "exit 0"); err == nil {
				t.Error("created after its end")
			}
			if err := w.Close(w.soon()); err != nil {
				t.Fatal(err)
			}
			for _, state := range []string{"run", "exited-garbage"} {
				if dirs := w.podDirs(state); len(dirs) > 0 {
					t.Errorf("%s: %q", state, dirs)
				}
			}
		})
	}
}

// The deletion of another app does not end a debug app.
func TestADebugAppOutlivesTheOtherAppsOfItsPod(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "sleep 300")
	w.mustRun("b", "sleep 300")
	d := w.mustDebug("a", "sleep 300")
	w.mustKillAndDelete("b")
	if s := d.current().status().State; s != Running {
		t.Errorf("the debug app is %s", s)
	}
	w.stage1.die() // the end of the stage1 ends it
	if e, err := d.Wait(w.soon()); err != nil || e.Code != 137 {
		t.Errorf("exit %+v, %v", e, err)
	}
	w.mustWait("a", "")
	w.mustDelete("a", "")
	w.mustLeaveNothing(d)
}

func TestStopSandboxEndsDebugApps(t *testing.T) {
	w := newWorld(t)
	w.sandbox(boxConfig(t, t.TempDir()))
	w.mustRun("a", "sleep 300")
	d := w.mustDebug("a", "sleep 300")
	if err := w.StopSandbox(w.soon(), "box", 0); err != nil {
		t.Fatal(err)
	}
	w.mustLeaveNothing(d)
	if _, err := w.AddDebug("a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("debug an app of a stopped sandbox: %v", err)
	}
}

func TestADebugAppIsRefused(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "sleep 300")
	if _, err := w.AddDebug("none"); !errdefs.IsNotFound(err) {
		t.Errorf("of an unknown app: %v", err)
	}
	if _, err := w.AddDebug("a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("of an app that was not started: %v", err)
	}
	w.mustStart("a", "")
	for _, own := range []abi.Own{abi.OwnProcesses, abi.OwnNamespaces, abi.OwnRootfs, abi.OwnResources} {
		w.stage1.own = []abi.Own{own}
		if _, err := w.AddDebug("a"); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "stage1 fake") {
			t.Errorf("by a stage1 that owns %s: %v", own, err)
		}
	}
	w.stage1.own = nil
	w.stage1.has[abi.AppAdd] = false
	if _, err := w.AddDebug("a"); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "stage1 fake") {
		t.Errorf("by a stage1 that adds no app: %v", err)
	}
	delete(w.stage1.has, abi.AppAdd)
	w.mustKillAndDelete("a")
}

// take gives the record of a process the pid of another one, until giveBack is called.
func (p *process) take(pid int, start uint64) (giveBack func()) {
	set := func(pid int, start uint64) (int, uint64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		oldPID, oldStart := p.pid, p.start
		p.pid, p.start = pid, start
		return oldPID, oldStart
	}
	oldPID, oldStart := set(pid, start)
	return func() { set(oldPID, oldStart) }
}

// A target that ends gives its pid back, and the next process with that pid may be one of the
// host. The namespaces that a debug app joins stay those of the target.
func TestTheNamespacesOfADebugAppAreThoseThatWereOpened(t *testing.T) {
	w := newWorld(t)
	c := boxConfig(t, t.TempDir())
	holder := w.sandbox(c)
	w.mustRun("a", "sleep 300")
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	giveBack := a.process.take(holder.PID, w.owner.(*sandbox).holder.start) // its namespaces are its own
	d := w.mustAddDebug("a")
	var kinds []string
	for _, n := range d.Namespaces {
		kinds = append(kinds, string(n.Type))
		file := map[specs.LinuxNamespaceType]string{specs.IPCNamespace: "ipc", specs.UTSNamespace: "uts"}[n.Type]
		its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", holder.PID, file))
		joined, err2 := os.Stat(n.Path)
		if err := errors.Join(err, err2); err != nil || !os.SameFile(its, joined) || strings.HasPrefix(n.Path, fmt.Sprintf("/proc/%d/", holder.PID)) {
			t.Errorf("%s: %v", n.Path, err)
		}
	}
	if !slices.Equal(kinds, []string{"ipc", "uts"}) { // all others are the host's
		t.Errorf("namespaces %q", kinds)
	}
	// A process with another start time has the pid of the target.
	a.process.mu.Lock()
	a.start++
	a.process.mu.Unlock()
	if _, err := w.AddDebug("a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("the pid belongs to another process: %v", err)
	}
	if left, _ := filepath.Glob(w.data + "/debug/*/*"); len(left) != 1 {
		t.Errorf("directories of debug apps: %q", left)
	}
	giveBack()
}

// A stage1 that ignores the namespaces to join would show the operator something else than the target.
func TestADebugAppThatIsNotInTheNamespacesOfItsTargetIsRefused(t *testing.T) {
	w := newWorld(t)
	holder := w.sandbox(boxConfig(t, t.TempDir()))
	w.mustRun("a", "sleep 300")
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	giveBack := a.process.take(holder.PID, w.owner.(*sandbox).holder.start) // its namespaces are its own
	d := w.mustAddDebug("a")
	giveBack()
	if err := w.createDebug(d, "sleep 300"); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "stage1 fake has made the debug app in another ipc namespace") {
		t.Errorf("%v", err)
	}
	if err := d.End(t.Context()); err != nil {
		t.Error(err)
	}
	w.mustLeaveNothing(d)
}

// The record of a debug app names its target, so that a collector removes it first.
func TestTheRecordOfADebugAppNamesItsTarget(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "sleep 300")
	d := w.mustDebug("a", "sleep 300")
	target, _ := w.app("a")
	if r := d.current().disk.Record(); r.Debugs != target.name || r.Bundle != d.Dir || r.Cgroup == nil {
		t.Errorf("%+v", r)
	} else if _, err := cgroup.FromRecord(*r.Cgroup); err != nil {
		t.Error(err)
	}
	w.mustKillAndDelete("a")
	w.mustLeaveNothing(d)
}

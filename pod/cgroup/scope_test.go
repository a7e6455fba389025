package cgroup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// fakeSystemd makes and removes directories as systemd does, in the hierarchies
// that it uses.
type fakeSystemd struct {
	roots  map[string]string
	units  map[string]string     // name to path
	limits map[string]properties // by the unit's name
	set    []properties          // the calls of setProperties
	fails  error                 // what the next setProperties returns
}

func newFakeSystemd(h *hierarchies) *fakeSystemd {
	f := &fakeSystemd{roots: map[string]string{}, units: map[string]string{}, limits: map[string]properties{}}
	for _, name := range []string{"", "name=systemd", "cpu", "cpuacct", "memory", "pids", "blkio", "devices"} {
		if root, ok := h.roots[name]; ok {
			f.roots[name] = root
		}
	}
	return f
}

func (f *fakeSystemd) startScope(_ context.Context, u unit, pid int, limits properties) error {
	if _, ok := f.units[u.name]; ok {
		return errTaken
	}
	f.units[u.name] = u.path()
	for _, root := range f.roots {
		dir := filepath.Join(root, u.path())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return f.apply(u.name, limits)
}

func (f *fakeSystemd) setProperties(_ context.Context, name string, limits properties) error {
	if err := f.fails; err != nil {
		f.fails = nil
		return err
	}
	f.set = append(f.set, limits)
	return f.apply(name, limits)
}

// apply writes the limits of a scope to the files of version 1, as systemd does.
func (f *fakeSystemd) apply(name string, limits properties) error {
	has := f.limits[name]
	for _, p := range limits {
		has.set(p.name, p.value, p.since)
	}
	f.limits[name] = has
	for property, file := range map[string]string{
		"CPUShares": "cpu/cpu.shares", "MemoryLimit": "memory/memory.limit_in_bytes", "TasksMax": "pids/pids.max", "CPUQuotaPerSecUSec": "cpu/cpu.cfs_quota_us",
	} {
		controller, file, _ := strings.Cut(file, "/")
		root, ok := f.roots[controller]
		if !ok || !limits.has(property) {
			continue
		}
		value := limits.of(property).(uint64)
		text := strconv.FormatUint(value, 10)
		switch {
		case value == unset && property == "TasksMax":
			text = "max"
		case value == unset && property == "CPUShares":
			text = "1024"
		case value == unset:
			text = "-1"
		case property == "CPUQuotaPerSecUSec":
			text = strconv.FormatUint(value/10, 10) // of a period of 100 ms
		}
		if err := os.WriteFile(filepath.Join(root, f.units[name], file), []byte(text), 0); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeSystemd) stopScope(ctx context.Context, name string) error {
	path, ok := f.units[name]
	if !ok {
		return nil
	}
	delete(f.units, name)
	delete(f.limits, name)
	for _, root := range f.roots {
		if err := removeBelow(ctx, filepath.Join(root, path)); err != nil {
			return err
		}
	}
	return nil
}

// withScopes runs a test on each version of cgroups that is mounted here, with a fake
// systemd that makes scopes in a slice of the test's own.
func withScopes(t *testing.T, test func(t *testing.T, m Maker, h *hierarchies, f *fakeSystemd, triple string)) {
	slice := fmt.Sprintf("rkttest%d.slice", os.Getpid())
	run := func(h hierarchies) func(t *testing.T) {
		return func(t *testing.T) {
			f := newFakeSystemd(&h)
			h.systemd = f
			children := proc.NewChildren()
			t.Cleanup(func() {
				for _, dir := range h.places("/" + slice) {
					if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
						t.Errorf("left: %v", err)
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				if err := children.Close(ctx); err != nil {
					t.Errorf("a placeholder is left: %v", err)
				}
			})
			test(t, Maker{Children: children}, &h, f, slice+":rkt:app1")
		}
	}
	t.Run("version 1", func(t *testing.T) { run(*needV1(t))(t) })
	t.Run("version 2", func(t *testing.T) {
		root := cgroup2Root(t)
		run(hierarchies{version: 2, roots: map[string]string{"": root}})(t)
	})
}

// claimScope makes the cgroup of a scope. It sets no limits, because the version 2
// hierarchy of a hybrid host has none.
func claimScope(t *testing.T, m Maker, h *hierarchies, triple string) *Group {
	t.Helper()
	u, ok := h.scopeOf(Path{Spec: triple})
	if !ok {
		t.Fatalf("%s is no scope", triple)
	}
	g, err := h.claimScope(u, m.Children, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { leave(t, g, h) })
	return g
}

// leave ends a scope as Remove does, with the test's systemd.
func leave(t *testing.T, g *Group, h *hierarchies) {
	t.Helper()
	destroy(t, g)
	name := filepath.Base(filepath.Dir(g.Path()))
	if err := h.systemd.stopScope(within(t, 10*time.Second), name); err != nil {
		t.Errorf("stop %s: %v", name, err)
	}
}

// requirements.md#C1
func TestAScopeHasTheAppBelowItAndAPlaceholderFromBeginToEnd(t *testing.T) {
	withScopes(t, func(t *testing.T, m Maker, h *hierarchies, f *fakeSystemd, triple string) {
		g := claimScope(t, m, h, triple)
		if h.version == 1 { // the other controllers
			if err := g.setUp(&specs.LinuxResources{Devices: denyAll, Pids: &specs.LinuxPids{Limit: ptr[int64](7)}}); err != nil {
				t.Fatal(err)
			}
			if got := read(t, g, "pids", "pids.max"); got != "7" {
				t.Errorf("pids.max is %s", got)
			}
		}
		if want := "/rkt-app1.scope/app"; !strings.HasSuffix(g.Path(), want) {
			t.Errorf("its path is %s, want …%s", g.Path(), want)
		}
		if len(f.units) != 1 {
			t.Errorf("units %v", f.units)
		}
		pid := g.Record().Placeholder.PID
		if s, err := proc.ReadStat(pid); err != nil || s.State == 'Z' {
			t.Errorf("the placeholder: %+v, %v", s, err)
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !strings.Contains(string(b), "/rkt-app1.scope") {
			t.Errorf("the placeholder is in %s, %v", b, err)
		}
		tasks := map[int]string{1: "tasks", 2: "cgroup.procs"}[h.version]
		enterDirs(t, g.dirs, tasks, "exec sleep 60")
		if pids, err := g.Pids(); err != nil || len(pids) != 1 || pids[0] == pid {
			t.Errorf("pids %v, %v; want the sleep alone", pids, err)
		}
		if err := g.Kill(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		if !proc.Alive(pid, g.Record().Placeholder.StartTime) {
			t.Error("the placeholder was killed with the app")
		}
		if _, err := g.Stats(); err != nil {
			t.Errorf("statistics after the end: %v", err)
		}

		// Remove the scope as `delete` does: from the record on disk.
		text, err := json.Marshal(g.Record())
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		other, err := FromRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		leave(t, other, h)
		if proc.Alive(pid, g.Record().Placeholder.StartTime) {
			t.Error("the placeholder is left")
		}
		for _, dir := range g.dirs {
			if _, err := os.Stat(filepath.Dir(dir)); err == nil {
				t.Errorf("%s is left", filepath.Dir(dir))
			}
		}
	})
}

func TestAScopeOfTheNameOfAnotherIsRefused(t *testing.T) {
	withScopes(t, func(t *testing.T, m Maker, h *hierarchies, f *fakeSystemd, triple string) {
		first := claimScope(t, m, h, triple)
		g, err := m.create(h, Path{Spec: triple, Namespace: "ns", ID: "id"}, nil)
		if err == nil {
			leave(t, g, h)
		}
		var used *InUseError
		if !errors.As(err, &used) || !Overlaps(first.record.Dir(), used.Dir) || !strings.Contains(err.Error(), "rkt-app1.scope") {
			t.Errorf("%v (%+v)", err, used)
		}
		if len(f.units) != 1 {
			t.Errorf("units %v", f.units)
		}
	})
}

// Another container may ask for the scope of a container whose shim was killed a moment ago.
func TestTheScopeOfADeadShimIsTakenAndMadeAnew(t *testing.T) {
	withScopes(t, func(t *testing.T, m Maker, h *hierarchies, f *fakeSystemd, triple string) {
		dead := claimScope(t, m, h, triple)
		if h.version == 1 { // otherwise no process can enter
			if err := dead.setUp(&specs.LinuxResources{Devices: denyAll}); err != nil {
				t.Fatal(err)
			}
		}
		left := enterDirs(t, dead.dirs, map[int]string{1: "tasks", 2: "cgroup.procs"}[h.version], "exec sleep 60")
		g, err := FromRecord(dead.Record())
		if err != nil {
			t.Fatal(err)
		}
		_ = dead.lock.Close()
		if _, err := m.create(h, Path{Spec: triple}, nil); !errors.Is(err, errTaken) {
			t.Errorf("before it is taken: %v", err)
		}
		if ok, err := g.Take(within(t, 10*time.Second)); !ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
		if err := g.End(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		wait.For(t, "the end of its process", left.ended)
		leave(t, g, h) // systemd notices the end by itself
		if len(f.units) != 0 {
			t.Errorf("units %v", f.units)
		}
		if next := claimScope(t, m, h, triple); next.Path() != dead.Path() {
			t.Errorf("the next one is at %s, and was at %s", next.Path(), dead.Path())
		}
	})
}

func TestAScopeThatFailsLeavesNothing(t *testing.T) {
	withScopes(t, func(t *testing.T, m Maker, h *hierarchies, f *fakeSystemd, triple string) {
		if _, err := m.create(h, Path{Spec: triple}, &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4000"}}); err == nil {
			t.Error("CPU 4000 was found")
		}
		for name := range f.units { // systemd notices the end by itself
			if err := f.stopScope(within(t, 10*time.Second), name); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWithoutSystemdATripleIsAPath(t *testing.T) {
	h := &hierarchies{version: 1}
	if _, ok := h.scopeOf(Path{Spec: "a.slice:b:c"}); ok {
		t.Error("systemd would be asked")
	}
	h.systemd = &fakeSystemd{}
	for spec, want := range map[string]bool{"a.slice:b:c": true, ":b:c": true, "a.slice:b:c.slice": false, "/a/b": false, "": false, "a:b:c": false} {
		if _, ok := h.scopeOf(Path{Spec: spec}); ok != want {
			t.Errorf("%q: a scope is %v, want %v", spec, ok, want)
		}
	}
}

// This test needs a host whose first process is systemd.
// requirements.md#C1
func TestAScopeOfSystemds(t *testing.T) {
	h := needHost(t)
	if h.systemd == nil {
		t.Skip("systemd does not run")
	}
	children := proc.NewChildren()
	defer func() {
		if err := children.Close(within(t, 10*time.Second)); err != nil {
			t.Errorf("a placeholder is left: %v", err)
		}
	}()
	m := Maker{Children: children}
	p := Path{Spec: fmt.Sprintf("rkttest%d.slice:rkt:app1", os.Getpid())}
	var res *specs.LinuxResources
	var limits []file
	wantTasks := "infinity"
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil || strings.Contains(string(controllers), "pids") { // a container may have none
		res = &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](7)}}
		limits, wantTasks = []file{{"pids", "pids.max", "7"}}, "8" // with the placeholder
	}
	var before string
	for range 2 { // the name is free again
		g, err := m.Create(p, res)
		if err != nil {
			t.Fatal(err)
		}
		if before != "" && g.Path() != before {
			t.Errorf("at %s, and before at %s", g.Path(), before)
		}
		before = g.Path()
		enter(t, g, "exec sleep 60")
		systemctl(t, children, "daemon-reload")
		expectFiles(t, g, limits)
		unit := filepath.Base(filepath.Dir(g.Path()))
		show := func(property string) string {
			return systemctl(t, children, "show", "--value", "-p", property, unit)
		}
		if show("ActiveState") != "active" || show("Delegate") != "yes" || show("TasksMax") != wantTasks || show("ControlGroup") != filepath.Dir(g.Path()) {
			t.Errorf("systemd says %s, %s, %s, %s", show("ActiveState"), show("Delegate"), show("TasksMax"), show("ControlGroup"))
		}
		if err := g.Kill(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Stats(); err != nil {
			t.Errorf("after the end: %v", err)
		}
		expectFiles(t, g, limits)
		if err := g.Remove(within(t, 30*time.Second)); err != nil {
			t.Fatal(err)
		}
		if show("LoadState") != "not-found" {
			t.Errorf("%s is still %s", unit, show("LoadState"))
		}
	}
}

func systemctl(t *testing.T, children *proc.Children, args ...string) string {
	t.Helper()
	release := children.Expect()
	defer release()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemctl %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

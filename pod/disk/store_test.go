package disk

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/appc/spec/schema"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

var testKey = Key{Daemon: "/run/containerd/containerd.sock", Namespace: "default", Sandbox: "box"}

func newStore(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "rkt"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newDir(t testing.TB, s *Store) *Dir {
	t.Helper()
	d, err := s.Create(testKey, Stage1Record{Name: "fake", Digest: "sha512-0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

// places lists the pod directories, as STATE/UUID.
func places(t testing.TB, s *Store) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "pods", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i], _ = filepath.Rel(filepath.Join(s.dir, "pods"), found[i])
	}
	return found
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTheDataDirectoryIsMadeAndItsErrorsNameTheVariable(t *testing.T) {
	s := newStore(t)
	st, err := os.Stat(s.path(dirRun, ""))
	if err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", st, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStore(filepath.Join(file, "rkt")); err == nil || !strings.Contains(err.Error(), "RKT_DATA_DIR") {
		t.Errorf("a data directory in a file: %v", err)
	}
}

func TestAPodGoesThroughRktsDirectoriesUnderOneLock(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	lock := d.LockFile()
	for _, step := range []struct {
		name   string
		do     func() error
		want   string
		locked bool
	}{
		{"created", func() error { return nil }, dirPrepare, true},
		{"running", d.Run, dirRun, true},
		{"running, told again", d.Run, dirRun, true},
		{"its supervisor is gone", d.ReleaseLock, dirRun, false},
		{"marked", d.MarkExited, dirExited, false},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := places(t, s); !reflect.DeepEqual(got, []string{step.want + "/" + d.UUID()}) {
			t.Errorf("%s: pods are at %v", step.name, got)
		}
		if locked, err := isLocked(d.Path()); err != nil || locked != step.locked {
			t.Errorf("%s: locked %v, %v", step.name, locked, err)
		}
		if step.locked && d.LockFile() != lock {
			t.Errorf("%s: the lock was taken anew", step.name)
		}
	}
	if d.LockFile() != nil {
		t.Error("there is a lock to hand out after its release")
	}
	if err := d.Remove(soon(t)); err != nil {
		t.Fatal(err)
	}
	if got := places(t, s); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if err := d.Remove(soon(t)); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestAPodThatRunsIsNotRemoved(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	other, err := s.find(d.UUID())
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := other.Remove(ctx); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("removed a locked pod: %v", err)
	}
	if len(places(t, s)) != 1 {
		t.Error("it is gone")
	}
}

func TestRemoveWaitsForAnObserver(t *testing.T) {
	d := newDir(t, newStore(t))
	if err := d.ReleaseLock(); err != nil {
		t.Fatal(err)
	}
	f, err := openDir(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := flock(f, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(30*time.Millisecond, func() { f.Close() })
	if err := d.Remove(soon(t)); err != nil {
		t.Error(err)
	}
}

func TestRemoveNeverFollowsMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	d := newDir(t, newStore(t))
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// If mounts propagate, as on most hosts with systemd, the second mount is visible
	// here.
	t.Cleanup(func() { _ = Unmount(filepath.Join(precious, "rootfs")) })
	for _, m := range []string{"stage1", "stage1/rootfs", "a b"} {
		at := filepath.Join(d.Path(), m)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(precious, at, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = Unmount(at) })
		if m == "stage1" {
			if err := os.MkdirAll(filepath.Join(precious, "rootfs"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The mount is busy, because a file in it is open.
	f, err := os.Open(filepath.Join(d.Path(), "a b", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Symlink(precious, filepath.Join(d.Path(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(soon(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("the tree that was mounted is damaged: %v", err)
	}
	if left, err := mountsBelow(d.Path()); err != nil || len(left) != 0 {
		t.Errorf("mounts left: %v, %v", left, err)
	}
}

func TestManifestsAreMadeFromTheBundle(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	bundle := t.TempDir()
	spec := &specs.Spec{
		Process: &specs.Process{
			Args: []string{"/bin/sh", "-c", "x"}, Cwd: "/srv",
			Env:  []string{"PATH=/bin", "1BAD=x", "ALSO BAD=y", "NOVALUE", "PATH=/twice", "a.b-c=d=e"},
			User: specs.User{UID: 7, GID: 8, AdditionalGids: []uint32{9}},
		},
		Root: &specs.Root{Readonly: true},
	}
	a, err := d.AddApp("Foo_1", bundle, spec)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.AddApp("foo-1", t.TempDir(), &specs.Spec{Process: &specs.Process{Args: []string{"x"}, Cwd: "/"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(spec)
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var m schema.PodManifest
	decodeManifest(t, &m, d, (*PodFiles).Manifest)
	if v, _ := m.Annotations.Get("coreos.com/rkt/stage1/mutable"); v != "true" || len(m.Apps) != 2 {
		t.Errorf("manifest: mutable %q, apps %+v", v, m.Apps)
	}
	app := m.Apps[0]
	if app.Name.String() != a.Name() || app.App.User != "7" || app.App.Group != "8" || app.App.WorkingDirectory != "/srv" ||
		len(app.App.Exec) != 3 || !app.ReadOnlyRootFS || !reflect.DeepEqual(app.App.SupplementaryGIDs, []int{9}) {
		t.Errorf("app: %+v", app)
	}
	if len(app.App.Environment) != 2 || app.App.Environment[1].Value != "d=e" {
		t.Errorf("environment: %+v", app.App.Environment)
	}
	var im schema.ImageManifest
	decodeManifest(t, &im, d, func(p *PodFiles, dir *os.Root) ([]byte, error) { return p.ImageManifest(dir, a.name) })
	if im.App == nil || im.App.User != "7" {
		t.Errorf("image manifest: %+v", im.App)
	}
	if m.Apps[1].Name.String() != b.Name() || m.Apps[1].App != nil {
		t.Errorf("app without a config.json: %+v", m.Apps[1])
	}
	for _, f := range []string{"pod.lck", "pod"} {
		if _, err := os.Stat(filepath.Join(d.Path(), f)); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(a.Remove(), a.Remove()); err != nil {
		t.Fatal(err)
	}
	m = schema.PodManifest{}
	decodeManifest(t, &m, d, (*PodFiles).Manifest)
	if len(m.Apps) != 1 || m.Apps[0].Name.String() != b.Name() {
		t.Errorf("apps after the removal: %+v", m.Apps)
	}
	if left, err := os.ReadDir(bundle); err != nil || len(left) != 1 {
		t.Errorf("left in the bundle: %v, %v", left, err)
	}
}

func decode(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func decodeManifest(t *testing.T, v any, d *Dir, manifest func(*PodFiles, *os.Root) ([]byte, error)) {
	t.Helper()
	r, err := NewReader(d.store.Path())
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Read(d.UUID())
	if err != nil {
		t.Fatal(err)
	}
	text, err := manifest(p, d.root)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestARemovalThatComesLateSparesTheNewContainer(t *testing.T) {
	d := newDir(t, newStore(t))
	bundle := t.TempDir()
	old, err := d.AddApp("c", bundle, &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := d.AddApp("c", bundle, &specs.Spec{}) // the bundle was made anew
	if err != nil {
		t.Fatal(err)
	}
	if old.Name() == fresh.Name() {
		t.Fatal("both have one name")
	}
	if err := old.Remove(); err != nil {
		t.Fatal(err)
	}
	var r bundleRecord
	decode(t, filepath.Join(bundle, bundleFile), &r)
	if string(r.App) != fresh.Name() {
		t.Errorf("the bundle names %s", r.App)
	}
}

func TestAddingWhileThePodMovesLosesNothing(t *testing.T) {
	d := newDir(t, newStore(t))
	done := make(chan error, 1)
	go func() {
		var errs []error
		for i := range 20 {
			a, err := d.AddApp(strings.Repeat("x", i+1), t.TempDir(), &specs.Spec{})
			if err == nil {
				err = a.Update(func(r *AppRecord) { r.PID = 1 })
			}
			errs = append(errs, err)
		}
		done <- errors.Join(errs...)
	}()
	if err := d.Run(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if names, err := d.apps(); err != nil || len(names) != 20 {
		t.Errorf("%d apps, %v", len(names), err)
	}
}

func TestAFailedCreateOfADirectoryLeavesNothing(t *testing.T) {
	s := newStore(t)
	if err := os.RemoveAll(s.path(dirPrepare, "")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(testKey, Stage1Record{}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("created without a place: %v", err)
	}
	if left := places(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAFailedAddLeavesNothing(t *testing.T) {
	d := newDir(t, newStore(t))
	if _, err := d.AddApp("c", filepath.Join(t.TempDir(), "none"), &specs.Spec{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("added without a bundle: %v", err)
	}
	bundle := t.TempDir()
	if err := os.Remove(filepath.Join(d.Path(), appsInfoDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.AddApp("c", bundle, &specs.Spec{}); err == nil {
		t.Error("added without a place")
	}
	if names, err := d.apps(); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
	if left, _ := os.ReadDir(bundle); len(left) != 0 {
		t.Errorf("left in the bundle: %v", left)
	}
}

func TestPoststopHooksRunOnce(t *testing.T) {
	d := newDir(t, newStore(t))
	bundle, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	limit := 1
	spec := &specs.Spec{Version: "1.2.0", Annotations: map[string]string{"k": "v"}, Hooks: &specs.Hooks{Poststop: []specs.Hook{
		{Path: "/bin/sh", Args: []string{"sh", "-c", "echo $HOME broken >&2; exit 3"}, Env: []string{"HOME=/h"}},
		{Path: "/bin/sh", Args: []string{"sh", "-c", "exec sleep 60"}, Timeout: &limit, Env: []string{"PATH=/bin:/usr/bin"}},
		{Path: "/bin/sh", Args: []string{"sh", "-c", "cat >> " + out}, Env: []string{"PATH=/bin:/usr/bin"}},
	}}}
	a, err := d.AddApp("c", bundle, spec)
	if err != nil {
		t.Fatal(err)
	}
	// The hooks are those on record: by now the spec may be gone.
	again, err := d.openApp(AppName(a.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Poststop(soon(t)); err == nil || !strings.Contains(err.Error(), "/h broken") {
		t.Errorf("what the first hook said is not told: %v", err)
	}
	if err := a.Poststop(soon(t)); err != nil {
		t.Errorf("a second time: %v", err)
	}
	var state specs.State
	decode(t, out, &state) // one document: it ran once
	if state.ID != "c" || state.Status != specs.StateStopped || state.Bundle != bundle || state.Version != "1.2.0" || state.Annotations["k"] != "v" {
		t.Errorf("state %+v", state)
	}
}

// Another `delete` may have read the app's record before a removal of the app began.
func TestTheHooksOfAnAppThatIsBeingRemovedDoNotRunAgain(t *testing.T) {
	d := newDir(t, newStore(t))
	out := filepath.Join(t.TempDir(), "out")
	spec := &specs.Spec{Version: "1.2.0", Hooks: &specs.Hooks{Poststop: []specs.Hook{
		{Path: "/bin/sh", Args: []string{"sh", "-c", "echo once >> " + out}},
	}}}
	a, err := d.AddApp("c", t.TempDir(), spec)
	if err != nil {
		t.Fatal(err)
	}
	other, err := d.openApp(AppName(a.Name()))
	if err != nil {
		t.Fatal(err)
	}
	// The removal goes as far as the marker, and its directory is still there.
	if err := errors.Join(a.Poststop(soon(t)), a.dropHooks(), os.Remove(filepath.Join(a.Path(), poststopFile))); err != nil {
		t.Fatal(err)
	}
	if err := other.Poststop(soon(t)); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "once\n" {
		t.Errorf("the hook ran: %q, %v", text, err)
	}
}

// A hook that prints endlessly would otherwise take the memory of a shim, or of delete.
func TestTheOutputOfAHookIsNotKeptInMemory(t *testing.T) {
	d := newDir(t, newStore(t))
	const script = "head -c 200000000 /dev/zero; echo the end >&2; exit 3"
	spec := &specs.Spec{Version: "1.2.0", Hooks: &specs.Hooks{Poststop: []specs.Hook{
		{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/bin:/usr/bin"}},
	}}}
	a, err := d.AddApp("c", t.TempDir(), spec)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = a.Poststop(soon(t))
	runtime.ReadMemStats(&after)
	if err == nil || !strings.HasSuffix(err.Error(), "the end") || len(err.Error()) > 8<<10 {
		t.Errorf("%.200v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("its output took %d bytes of memory", took)
	}
}

func TestRecordsKeepFieldsOfOtherReleases(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	path := filepath.Join(d.Path(), shimFile)
	var raw map[string]any
	decode(t, path, &raw)
	raw["future"] = "x"
	raw["shim"].(map[string]any)["thread"] = 5.0
	b, err := json.Marshal(raw)
	if err == nil {
		err = os.WriteFile(path, b, 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
	later, err := s.open(dirPrepare, d.UUID())
	if err != nil {
		t.Fatal(err)
	}
	defer later.close()
	if err := later.SetSupervisor(SupervisorRecord{PID: 4711, StartTime: 1}); err != nil {
		t.Fatal(err)
	}
	raw = nil
	decode(t, path, &raw)
	if raw["future"] != "x" || raw["shim"].(map[string]any)["thread"] != 5.0 || raw["supervisor"].(map[string]any)["pid"] != 4711.0 {
		t.Errorf("%v", raw)
	}
	var r shimRecord
	decode(t, path, &r)
	if r.Version != 1 || r.Daemon != testKey.Daemon || r.Namespace != "default" || r.Sandbox != "box" || r.Shim.PID != os.Getpid() || len(r.BootID) != 36 {
		t.Errorf("%+v", r)
	}
}

func TestAFieldThatIsClearedIsNotKept(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r := AppRecord{Version: 1, ID: "a", Name: "a-1", Bundle: "/b"}
	running := r
	running.PID, running.StartTime, running.State = 5, 1, "created"
	for _, r := range []AppRecord{running, r} {
		if err := writeRecord(dir, "r", r); err != nil {
			t.Fatal(err)
		}
	}
	var got AppRecord
	if err := readRecord(dir, "r", &got); err != nil || got.PID != 0 || got.State != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if left, _ := os.ReadDir(dir.Name()); len(left) != 2 {
		t.Errorf("files: %v; want the record and its spare", left)
	}
}

func TestUUIDs(t *testing.T) { // trap 11, checklist 1 of rkt's ABI
	if a, b := newUUID(), newUUID(); a == b || !isUUID(a) || a[14] != '4' {
		t.Errorf("%s, %s", a, b)
	}
	for _, s := range []string{"", "..", "../../etc/passwd", strings.Repeat("a", 36), "5D1A0000-0000-4000-8000-000000000000"} {
		if isUUID(s) {
			t.Errorf("%q passes", s)
		}
	}
	if _, err := newStore(t).find("../../x"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("looked outside: %v", err)
	}
}

func FuzzNamesAreValidAndInjective(f *testing.F) { // trap 11, checklist 1 of rkt's ABI
	f.Add("Foo_1", "foo-1", 1, 2)
	f.Add("", "-", 1, 1)
	f.Add(strings.Repeat("c", 76), strings.Repeat("c", 75)+"d", 1, 1)
	f.Fuzz(func(t *testing.T, id1, id2 string, g1, g2 int) {
		g1, g2 = g1&0xffffff, g2&0xffffff
		a, b := newAppName(id1, g1), newAppName(id2, g2)
		if same := id1 == id2 && g1 == g2; same != (a == b) {
			t.Errorf("%q/%d is %s, %q/%d is %s", id1, g1, a, id2, g2, b)
		}
		if !a.valid() {
			t.Errorf("%q: %q is not valid", id1, a)
		}
		var rt schema.RuntimeApp
		if err := rt.Name.Set(string(a)); err != nil {
			t.Errorf("%q: appc refuses %q: %v", id1, a, err)
		}
	})
}

func FuzzUnknownFieldsSurvive(f *testing.F) {
	f.Add([]byte(`{"x":1,"shim":{"y":null},"supervisor":[]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, old []byte) {
		w, err := json.Marshal(shimRecord{Version: 1, Supervisor: &SupervisorRecord{PID: 1}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := keepUnknown(w, old, reflect.TypeFor[shimRecord]())
		if err != nil {
			t.Fatal(err)
		}
		var r shimRecord
		if err := json.Unmarshal(got, &r); err != nil || r.Version != 1 || r.Supervisor == nil || r.Supervisor.PID != 1 {
			t.Errorf("%q: %q, %v", old, got, err)
		}
	})
}

func TestTheRecordOfAnExecCanBeRemovedTwice(t *testing.T) {
	d := newDir(t, newStore(t))
	a, err := d.AddApp("web", t.TempDir(), &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(d.Path(), abi.StatusDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := a.DropExec("probe"); err != nil {
		t.Error(err)
	}
	if err := abi.WriteStatus(dir, a.Name(), "probe", abi.Status{Code: 1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.DropExec("probe"); err != nil {
			t.Error(err)
		}
	}
	if _, err := abi.ReadStatus(dir, a.Name(), "probe"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
}

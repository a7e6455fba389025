package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.yaml.in/yaml/v3"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// fixture is a data directory with pods whose shim is this process.
type fixture struct {
	*testing.T
	store *disk.Store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "rkt")
	t.Setenv(testData, dir)
	store, err := disk.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, store}
}

// pod makes a running pod with running apps.
func (f *fixture) pod(namespace, sandbox string, apps ...string) (*disk.Dir, []*disk.AppDir) {
	f.Helper()
	cmd := exec.CommandContext(f.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	start, err := proc.StartTime(cmd.Process.Pid)
	if err != nil {
		f.Fatal(err)
	}
	d, err := f.store.Create(disk.Key{Daemon: "/run/c.sock", Namespace: namespace, Sandbox: sandbox}, disk.Stage1Record{Name: "native", Digest: "sha512-ab12"}, nil)
	if err == nil {
		err = d.Run()
	}
	if err == nil {
		err = d.SetSupervisor(disk.SupervisorRecord{PID: cmd.Process.Pid, StartTime: start})
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.Remove(context.Background()) })
	var dirs []*disk.AppDir
	for _, id := range apps {
		bundle, spec := f.TempDir(), &specs.Spec{Process: &specs.Process{Args: []string{"sleep"}, Env: []string{"A=B"}, Cwd: "/"}}
		text, err := json.Marshal(spec)
		if err == nil {
			err = os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600)
		}
		if err != nil {
			f.Fatal(err)
		}
		a, err := d.AddApp(id, bundle, spec)
		if err == nil {
			err = a.Update(func(r *disk.AppRecord) { r.PID, r.StartTime = cmd.Process.Pid, start })
		}
		if err == nil {
			err = a.MarkStarted()
		}
		if err != nil {
			f.Fatal(err)
		}
		dirs = append(dirs, a)
	}
	return d, dirs
}

// shimDies makes the record of a pod name a shim that has ended.
func (f *fixture) shimDies(d *disk.Dir) {
	f.Helper()
	path := filepath.Join(d.Path(), "shim.json")
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	changed := bytes.Replace(text, []byte(`"shim":{"pid":`+strconv.Itoa(os.Getpid())+","), []byte(`"shim":{"pid":99999999,`), 1)
	if err := os.WriteFile(path, changed, 0o640); err != nil || bytes.Equal(text, changed) {
		f.Fatal(err, string(text))
	}
}

func done(t *testing.T, args ...string) string {
	t.Helper()
	got := rktctl(t, "", args...)
	if got.code != exitDone || got.stderr != "" {
		t.Fatalf("%q: %+v", args, got)
	}
	return got.stdout
}

func read(t *testing.T, v any, args ...string) {
	t.Helper()
	if err := json.Unmarshal([]byte(done(t, args...)), v); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
}

func TestListShowsPodsByTheirRecords(t *testing.T) {
	if got := done(t, "list"); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "UUID ") {
		t.Errorf("without pods: %q", got)
	}
	if got := done(t, "list", "-o", "json"); got != "[]\n" {
		t.Errorf("without pods: %q", got)
	}
	f := newFixture(t)
	one, _ := f.pod("default", "web", "web", "side")
	two, _ := f.pod("k8s.io", "db")
	f.shimDies(two)
	lines := strings.Split(done(t, "list"), "\n")
	for i, want := range []string{
		`^UUID +STATE +APPS +STAGE1 +NAMESPACE +ID +AGE$`,
		`^` + one.UUID() + ` +running +2/2 +native +default +web +\d+s$`,
		`^` + two.UUID() + ` +running, no shim +0/0 +native +k8s.io +db +\d+s$`,
	} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %q, want %s", lines[i], want)
		}
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 2}, {[]string{"--namespace", "k8s.io"}, 1}, {[]string{"--state", "exited"}, 0}, {[]string{"--state", "running"}, 2},
		{[]string{"--stage1", "native"}, 2}, {[]string{"--stage1", "sha512-ab"}, 2}, {[]string{"--stage1", "ab1"}, 2}, {[]string{"--stage1", "oci"}, 0},
	} {
		var list []view.Pod
		read(t, &list, append([]string{"list", "--json"}, c.args...)...)
		if len(list) != c.want {
			t.Errorf("%q: %d pods, want %d", c.args, len(list), c.want)
		}
	}
	if got := rktctl(t, "", "list", "--state", "rnning"); got.code != exitUsage || !strings.Contains(got.stderr, "running") {
		t.Errorf("%+v", got)
	}
	var list []map[string]any
	if err := yaml.Unmarshal([]byte(done(t, "list", "-o", "yaml")), &list); err != nil || len(list) != 2 || list[0]["uuid"] != one.UUID() {
		t.Errorf("%v, %v", err, list)
	}
}

func TestUsersOtherThanRootAreToldWhoMayReadPods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: pods belong to root")
	}
	f := newFixture(t)
	f.pod("default", "web", "web")
	for dir := filepath.Dir(f.store.Path()); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(f.store.Path(), "pods"), 0o700); err != nil { // the user keeps root's group
		t.Fatal(err)
	}
	for _, args := range [][]string{{"list"}, {"status", "web"}, {"ps"}, {"events"}, {"gc"}, {"inspect", "w"}} {
		if got := nobody(t, "", args...); got.code != exitWrong || !strings.Contains(got.stderr, "only root may read pods") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestStatusShowsAPodAndItsApps(t *testing.T) {
	f := newFixture(t)
	d, apps := f.pod("default", "web", "web", "side")
	at := time.Unix(1700000000, 0)
	status := filepath.Join(d.Path(), abi.StatusDir)
	if err := os.MkdirAll(status, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := abi.WriteStatus(status, apps[1].Name(), "", abi.Status{Code: 7, Time: at}); err != nil {
		t.Fatal(err)
	}
	if err := apps[1].Update(func(r *disk.AppRecord) { r.Unknown = []string{"/novel", "/hostnam (is hostname meant?)"} }); err != nil {
		t.Fatal(err)
	}
	got := done(t, "status", d.UUID()[:9])
	for _, want := range []string{
		`(?m)^pod +` + d.UUID() + `$`, `(?m)^state +running$`, `(?m)^id +web, in namespace default of /run/c.sock$`,
		`(?m)^stage1 +native sha512-ab12$`, `(?m)^shim +process ` + strconv.Itoa(os.Getpid()) + `$`, `(?m)^directory +` + d.Path() + `$`,
		`(?m)^ignored +of side: /novel, /hostnam \(is hostname meant\?\)$`,
		`(?m)^APP +STATE +PID +CREATED +STARTED +ENDED$`, `(?m)^web +running +\d+ .* -$`, `(?m)^side +exited 7 +\d+ .*` + regexp.QuoteMeta(moment(at)) + `$`,
	} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	var p view.Pod
	read(t, &p, "status", "web", "-o", "json")
	if p.UUID != d.UUID() || len(p.Apps) != 2 || p.Apps[1].Exit == nil || p.Apps[1].Exit.Code != 7 {
		t.Errorf("%+v", p)
	}
	if err := os.WriteFile(filepath.Join(d.Path(), "sandbox.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := done(t, "status", "web"); !strings.Contains(got, "running, damaged") || !strings.Contains(got, "sandbox.json is damaged") {
		t.Error(got)
	}
	for args, want := range map[string]string{"xyz": "no pod", "": "an empty word"} {
		if got := rktctl(t, "", "status", args); got.code != exitWrong || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestInspectHasTheJournalAndTheManifest(t *testing.T) {
	f := newFixture(t)
	d, _ := f.pod("default", "web", "web")
	if err := journal.Append(d.Path(), journal.Entry{Entrypoint: abi.Run, Code: 3, Error: "\x7f\u009b"}); err != nil {
		t.Fatal(err)
	}
	var all inspected
	read(t, &all, "inspect", "we")
	if all.UUID != d.UUID() || len(all.Journal) != 1 || all.Journal[0].Code != 3 || !strings.Contains(string(all.Manifest), `"acKind":`) {
		t.Errorf("%+v", all)
	}
	if got := done(t, "inspect", "web", "-o", "yaml"); yaml.Unmarshal([]byte(got), &map[string]any{}) != nil || strings.Contains(got, "\x7f") {
		t.Errorf("%q", got)
	}
}

func TestCatManifestPrintsTheManifestOfAPodOrAnApp(t *testing.T) {
	f := newFixture(t)
	d, _ := f.pod("default", "web", "a", "b")
	kind := func(want string, args ...string) {
		t.Helper()
		var m struct {
			Kind string `json:"acKind"`
			App  struct {
				Exec []string `json:"exec"`
			} `json:"app"`
		}
		read(t, &m, append([]string{"cat-manifest"}, args...)...)
		if m.Kind != want || want == "ImageManifest" && m.App.Exec[0] != "sleep" {
			t.Errorf("%q: %+v", args, m)
		}
	}
	kind("PodManifest", d.UUID())
	kind("PodManifest", "a")
	kind("ImageManifest", "--image", "a")
	if got := rktctl(t, "", "cat-manifest", "--image", "web"); got.code != exitUsage || !strings.Contains(got.stderr, "2 apps") {
		t.Errorf("%+v", got)
	}
}

func TestPsListsTheProcessesOfApps(t *testing.T) {
	f := newFixture(t)
	d, _ := f.pod("default", "one", "a")
	f.pod("default", "two", "b")
	var list []listedProcess
	read(t, &list, "ps", "--json")
	if len(list) != 2 || list[0].Pod != d.UUID() || list[0].App != "a" || list[0].Command != "sleep" || !list[0].First || list[0].Memory == 0 || list[0].Parent != os.Getpid() {
		t.Errorf("%+v", list)
	}
	read(t, &list, "ps", "--json", "b")
	if len(list) != 1 || list[0].App != "b" {
		t.Errorf("%+v", list)
	}
	if got := done(t, "ps", "one"); !regexp.MustCompile(`(?m)^` + d.UUID() + ` +a +\d+ +\d+ +S +\S+ +\S+ [KM]iB +sleep$`).MatchString(got) {
		t.Error(got)
	}
}

func TestTopComparesTwoReadings(t *testing.T) {
	at := time.Now()
	app := func(name string) selectedApp { return selectedApp{&view.Pod{UUID: "u"}, &view.App{Name: name}} }
	before := map[string]sample{
		"a": {app("a"), view.Usage{Time: at, CPU: time.Second}},
		"b": {app("b"), view.Usage{Time: at, CPU: time.Second}},
		"c": {app("c"), view.Usage{Time: at, CPU: time.Second}}, // its cgroup was made again
	}
	later := at.Add(2 * time.Second)
	now := map[string]sample{
		"a": {app("a"), view.Usage{Time: later, CPU: time.Second, Memory: 5}},
		"b": {app("b"), view.Usage{Time: later, CPU: 4 * time.Second, Pids: 2, Limit: 1 << 30}},
		"c": {app("c"), view.Usage{Time: later, CPU: 0, Memory: 7}},
		"d": {app("d"), view.Usage{Time: later, CPU: time.Hour, Memory: 6}}, // it is new
	}
	list := usages(before, now)
	var order string
	for _, u := range list {
		order += u.App
		if want := map[string]float64{"b": 1.5}[u.App]; u.CPU != want {
			t.Errorf("%+v, want %f", u, want)
		}
	}
	if order != "bcda" {
		t.Error(order)
	}
	if got := rktctl(t, "", "top", "--interval", "1ms"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
	if got := done(t, "top", "--interval", "10ms", "-o", "json"); got != "[]\n" {
		t.Error(got)
	}
}

func TestEventsAreALineEach(t *testing.T) {
	f := newFixture(t)
	d, apps := f.pod("default", "web", "web")
	other, _ := f.pod("default", "other")
	for _, e := range []journal.Entry{
		{Time: time.Now(), Entrypoint: abi.AppAdd, App: apps[0].Name(), Millis: 2},
		{Time: time.Now(), Entrypoint: abi.Enter, App: apps[0].Name(), Exec: "e1", Code: 9, Error: "no\nsuch \x1b[2J program"},
		{Time: time.Now(), App: apps[0].Name(), Unknown: []string{"/linux/levitation"}},
	} {
		if err := journal.Append(d.Path(), e); err != nil {
			t.Fatal(err)
		}
	}
	got := done(t, "events", "web")
	for _, want := range []string{
		`(?m)^\S+T\S+  ` + d.UUID()[:8] + `  created$`, `(?m)  web: created$`, `(?m)  web: started$`, `(?m)  web: app/add done after 2.0 ms$`,
		`(?m)  web, exec e1: enter failed with code 9 after 0.0 ms: no such \\x1b\[2J program$`, `(?m)  web: ignored fields .* /linux/levitation$`,
	} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Count(got, "\n") != 6 {
		t.Error(got)
	}
	if all := done(t, "events"); !strings.Contains(all, other.UUID()[:8]) {
		t.Error(all)
	}
	for line := range strings.Lines(done(t, "events", "web", "-o", "json")) {
		var e view.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Pod != d.UUID() {
			t.Errorf("%q: %v", line, err)
		}
	}
	if got := rktctl(t, "", "events", "--new"); got.code != exitUsage {
		t.Errorf("%+v", got)
	}
}

// lines collects the output of a verb that does not end.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func TestWatchShowsChangesUntilItIsInterrupted(t *testing.T) {
	f := newFixture(t)
	d, apps := f.pod("default", "web", "web")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	start := func(args ...string) (*lines, chan int) {
		var out lines
		code := make(chan int, 1)
		getenv := func(name string) string {
			return map[string]string{config.DataDirVariable: os.Getenv(testData)}[name]
		}
		go func() { code <- Run(ctx, &Env{Stdout: &out, Stderr: &out, Getenv: getenv}, args) }()
		return &out, code
	}
	list, listed := start("list", "--watch")
	status, statused := start("status", "web", "-w", "-o", "yaml")
	events, ended := start("events", "web", "--follow", "--new")
	wait.Until(t, "the first list", func() bool { return list.has("1/1") && status.has("state: running") })
	second, _ := f.pod("default", "second")
	wait.Until(t, "the second pod", func() bool { return list.has(second.UUID()) })
	wait.Until(t, "an event", func() bool {
		if err := journal.Append(d.Path(), journal.Entry{Time: time.Now(), Entrypoint: abi.AppStop, App: apps[0].Name()}); err != nil {
			t.Fatal(err)
		}
		return events.has("web: app/stop done")
	})
	if events.has("web: started") {
		t.Error("--new shows what was before")
	}
	if err := apps[0].Remove(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the removal of the app", func() bool { return list.has("0/0") && status.has("---") && events.has("web: removed") })
	if err := os.RemoveAll(d.Path()); err != nil {
		t.Fatal(err)
	}
	if code := wait.For(t, "the end of events", ended); code != exitDone || !events.has("  removed\n") {
		t.Errorf("events of a pod that was removed: %d, %s", code, &events.text)
	}
	if code := wait.For(t, "the end of status", statused); code != exitWrong || !status.has("no pod") {
		t.Errorf("status of a pod that was removed: %d, %s", code, &status.text)
	}
	interrupt()
	if code := wait.For(t, "the end of list", listed); code != exitDone {
		t.Errorf("list: %d, %s", code, &list.text)
	}
}

func TestGCRemovesWhatShimsHaveLeft(t *testing.T) {
	t.Setenv(testData, filepath.Join(t.TempDir(), "absent"))
	if got := done(t, "gc", "-o", "json"); got != "[]\n" {
		t.Error(got)
	}
	if _, err := os.Lstat(os.Getenv(testData)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gc has made a data directory: %v", err)
	}
	f := newFixture(t)
	living, _ := f.pod("default", "living")
	kept, _ := f.pod("default", "kept", "kept")
	f.shimDies(kept)
	old, _ := f.pod("default", "old")
	path := filepath.Join(old.Path(), "shim.json")
	boot, err := proc.BootID()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(boot), []byte("another"), 1), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(living.ReleaseLock(), kept.ReleaseLock(), old.ReleaseLock()); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		args := []string{"gc", "--json"}
		if dry {
			args = append(args, "--dry-run")
		}
		var list []collectedPod
		read(t, &list, args...)
		byPod := map[string]collectedPod{}
		for _, p := range list {
			byPod[p.Pod] = p
		}
		if p := byPod[kept.UUID()]; p.Collected || p.Kept != "containerd has not deleted its container kept" {
			t.Errorf("%+v", list)
		}
		if p := byPod[old.UUID()]; p.Collected == dry || p.Why != "it is of another boot" || len(list) != 2 {
			t.Errorf("%+v", list)
		}
		if _, err := os.Lstat(old.Path()); dry != (err == nil) {
			t.Errorf("with dry run %v: %v", dry, err)
		}
	}
	if got := done(t, "gc"); !strings.Contains(got, kept.UUID()) || strings.Contains(got, living.UUID()) || !strings.Contains(got, "kept: ") {
		t.Error(got)
	}
}

func TestVersionNamesTheInterfaces(t *testing.T) {
	var v versions
	read(t, &v, "version", "--json")
	if v.Release != "unknown" || v.ABI != abi.Version || !strings.HasPrefix(v.Go, "go1.") || v.Platform == "" {
		t.Errorf("%+v", v)
	}
	if got := done(t, "version"); !strings.Contains(got, "version 7, and rkt's versions 1 to 6") {
		t.Error(got)
	}
}

func TestShellsCompletePods(t *testing.T) {
	f := newFixture(t)
	d, _ := f.pod("default", "web", "web-app")
	for begun, want := range map[string]string{"status " + d.UUID()[:3]: d.UUID() + "\t", "inspect web": "web-app\t", "list --state ru": "running"} {
		got := rktctl(t, "", append([]string{"__complete"}, strings.Split(begun, " ")...)...)
		if got.code != exitDone || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v", begun, got)
		}
	}
}

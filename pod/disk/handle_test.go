package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func openTest(t *testing.T, path string) handle {
	t.Helper()
	h, err := openHandle(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

func TestAHandleReplacesFilesAlsoWithShorterOnes(t *testing.T) {
	dir := t.TempDir()
	h := openTest(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir + "-moved")
	for i, put := range []func(string, any) error{h.create, h.write, h.write, h.create, h.create, h.write} {
		want := []string{"a long text", "short", "", "a long text again"}[i%4]
		if err := put("sub/file", want); err != nil {
			t.Fatal(err)
		}
		if got, err := h.read("sub/file"); err != nil || string(got) != `"`+want+`"` {
			t.Errorf("%s, %v, want %q", got, err, want)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(dir+"-moved", "sub")); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: want the file and its spare", entries, err)
	}
	if _, err := h.read("sub/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// A stage1 can make links in its directories.
func TestAHandleFollowsNoLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	precious := filepath.Join(elsewhere, "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"dir": elsewhere, "file": precious, ".spared.spare": precious} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	h := openTest(t, dir)
	for _, put := range []func(string, any) error{h.create, h.write} {
		if err := put("dir/precious", nil); err == nil {
			t.Error("a file was replaced through a link to its directory")
		}
		if err := put("spared", "y"); err == nil {
			t.Error("a file was written through a link")
		}
	}
	if _, err := h.read("file"); err == nil {
		t.Error("a file was read through a link")
	}
	if err := h.remove("dir", "precious"); err == nil {
		t.Error("a file was removed through a link to its directory")
	}
	if err := h.remove(".", "dir", "file"); err != nil {
		t.Error(err)
	}
	if err := h.empty(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAHandleRemovesTreesAndKeepsFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 { // more than one read of the directory
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("a directory with a long name, number %d", i), "b"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"keep", "drop"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := openTest(t, dir)
	if err := h.empty("keep"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "keep" {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := errors.Join(h.remove(".", "keep", "keep"), h.remove("none", "x"), os.Remove(dir), h.empty()); err != nil {
		t.Errorf("what has gone: %v", err)
	}
}

// A pod of an earlier release has appc's manifests and markers. This release reads them, and
// removes them with the app.
func TestAPodOfAnEarlierReleaseIsReadAndRemoved(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	a, err := d.AddApp("web", t.TempDir(), &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Update(func(r *AppRecord) { r.Created = r.Started }); err != nil { // it had no such fields
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		a.file("manifest"): `{"acKind":"ImageManifest"}`, a.file("started"): "", "pod-created": "",
		"pod": `{"acVersion":"0.8.11","acKind":"PodManifest","apps":[{"name":"` + a.Name() + `"},{"name":"other"}],"future":1}`,
	} {
		if err := os.WriteFile(filepath.Join(d.Path(), name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	r, err := NewReader(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Read(d.UUID())
	if err != nil || len(p.Apps) != 1 || p.Apps[0].Made.IsZero() || p.Apps[0].Started.IsZero() || p.Made.IsZero() {
		t.Fatalf("%+v, %v", p, err)
	}
	if text, err := p.ImageManifest(d.root, a.name); err != nil || string(text) != `{"acKind":"ImageManifest"}` {
		t.Errorf("%q, %v", text, err)
	}
	later, err := s.open(dirPrepare, d.UUID())
	if err != nil {
		t.Fatal(err)
	}
	defer later.close()
	old, err := later.openApp(a.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Remove(); err != nil {
		t.Fatal(err)
	}
	m := manifestOf(t, d.root)
	if apps := m["apps"].([]any); len(apps) != 1 || m["future"] == nil {
		t.Errorf("manifest %v", m)
	}
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Path()); err == nil {
		t.Error("the directory is still there")
	}
}

// A container may make directories in the tree of a stage1, deeper than files can be open.
func TestAPodsDirectoryIsEmptiedHoweverDeepItsTreeIs(t *testing.T) {
	dir := t.TempDir()
	h, err := openHandle(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range 500 {
		if err == nil {
			err = errors.Join(unix.Mkdirat(at, "deeper", 0o755), unix.Mkdirat(at, "beside", 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
		next, e := unix.Openat(at, "deeper", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		at, err = next, e
	}
	_ = unix.Close(at)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err = h.empty()
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); e != nil {
		t.Fatal(e)
	}
	if left, e := os.ReadDir(dir); err != nil || e != nil || len(left) > 0 {
		t.Errorf("%v, %v; %v is left", err, e, left)
	}
}

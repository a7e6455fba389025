package disk

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// A record that is accepted is safe to use: its pids and start times name one process each,
// its paths do not depend on the working directory, and it does not change if it is written
// and read again.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"version":1,"bootID":"b","shim":{"pid":7,"starttime":1},"supervisor":{"pid":8,"starttime":2,"leader":9}}`))
	f.Add([]byte(`{"version":1,"id":"a","name":"a-1","bundle":"/b","pid":7,"starttime":1,"cgroup":{"version":1,"path":"/x","dirs":{"devices":"/sys/fs/cgroup/devices/x"}}}`))
	f.Add([]byte(`{"version":1,"id":"a","bundle":"/b","links":["/l"],"holder":{"pid":7,"starttime":1}}`))
	f.Add([]byte(`{"version":1,"bootID":"b","dataDir":"/d","pod":"6733c088-a507-4694-aabf-edbe4fc5266f","app":"a-1","exit":{"pid":1,"code":2,"at":"2026-01-02T03:04:05Z"}}`))
	f.Add([]byte(`{"version":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := dir.WriteFile("r", text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, r := range []checked{&shimRecord{}, &AppRecord{}, &sandboxRecord{}, &bundleRecord{}} {
			if readRecord(dir, "r", r) != nil {
				continue
			}
			checkAccepted(t, r)
			again := reflect.New(reflect.TypeOf(r).Elem()).Interface()
			if err := writeRecord(dir, "again", reflect.ValueOf(r).Elem().Interface()); err != nil {
				t.Fatal(err)
			}
			if err := readRecord(dir, "again", again); err != nil {
				t.Errorf("%+v cannot be read again: %v", r, err)
			}
			if a, b := asJSON(t, r), asJSON(t, again); !bytes.Equal(a, b) {
				t.Errorf("%s became %s", a, b)
			}
		}
	})
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func checkAccepted(t *testing.T, r checked) {
	t.Helper()
	process := func(pid int, start uint64) {
		if pid < 2 || start == 0 {
			t.Errorf("%T with process %d, started at %d", r, pid, start)
		}
	}
	path := func(p string) {
		if !filepath.IsAbs(p) {
			t.Errorf("%T with the path %q", r, p)
		}
	}
	switch r := r.(type) {
	case *shimRecord:
		if s := r.Supervisor; s != nil && r.Version != 0 {
			process(s.PID, s.StartTime)
		}
	case *AppRecord:
		path(r.Bundle)
		if r.PID != 0 {
			process(r.PID, r.StartTime)
		}
		if !r.Name.valid() {
			t.Errorf("app %q", r.Name)
		}
	case *sandboxRecord:
		path(r.Bundle)
		if r.Holder != nil {
			process(r.Holder.PID, r.Holder.StartTime)
		}
	case *bundleRecord:
		path(r.DataDir)
		if !isUUID(r.Pod) || filepath.Clean(r.DataDir) != r.DataDir {
			t.Errorf("%+v", r)
		}
	}
}

// After an app was added and removed, the pod's manifest is as it was before. It may have
// fields of rkt's tools or of other releases, which this release does not know.
func FuzzPodManifest(f *testing.F) {
	f.Add([]byte(`{"acKind":"PodManifest","apps":[],"volumes":[{"name":"v"}],"future":{"x":1}}`), "a")
	f.Add([]byte(`{"apps":[{"name":"other","x":1e400},7,null,{"name":"a-0"}]}`), "a")
	f.Add([]byte(`{"Apps":[],"apps":null}`), "b/../c")
	f.Fuzz(func(t *testing.T, text []byte, id string) {
		dir, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		name := newAppName(id, 1)
		if err := dir.MkdirAll(filepath.Join(appsInfoDir, string(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string][]byte{podFile: text, podLockFile: nil} {
			if err := dir.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h, err := openHandle(dir.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer h.close()
		d := &Dir{root: dir, handle: h}
		if replaceManifest(dir, func(m *Manifest) error {
			m.Drop(func(app AppName) bool { return app == name })
			return nil
		}) != nil {
			return // it is none
		}
		before := manifestOf(t, dir)
		spec := &specs.Spec{Process: &specs.Process{Args: []string{id}, Env: []string{id + "=" + id}, Cwd: "/" + id}}
		_, entry, err := describeSpec(name, spec)
		if err != nil {
			return // appc cannot say it
		}
		err = replaceManifest(dir, func(m *Manifest) error { m.Apps = append(m.Apps, entry); return nil })
		if err != nil {
			t.Fatal(err)
		}
		with := manifestOf(t, dir)
		if len(with["apps"].([]any)) != len(before["apps"].([]any))+1 {
			t.Errorf("%v became %v", before, with)
		}
		if err := d.dropManifest(name); err != nil {
			t.Fatal(err)
		}
		if after := manifestOf(t, dir); !reflect.DeepEqual(before, after) {
			t.Errorf("%v became %v", before, after)
		}
	})
}

func manifestOf(t *testing.T, dir *os.Root) map[string]any {
	t.Helper()
	text, err := dir.ReadFile(podFile)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

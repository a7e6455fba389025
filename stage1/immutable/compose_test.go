package immutable

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/appc/spec/schema/types"

	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/appc"
)

func TestWhatStage0DoesNotKnowOfAPodsManifestIsKept(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write("pod.lck", "")
	write("pod", `{"acKind": "PodManifest", "future": {"x": 1}, "volumes": [{"name": "v", "y": 2}],
		"annotations": [{"name": "coreos.com/rkt/stage1/mutable", "value": "true"}, {"name": "a.b/c", "value": "d"}],
		"apps": [{"name": "other", "z": 3}, {"name": "web-1"}, {"name": "announced"}]}`)
	write(filepath.Join(stage1.Stage2Dir, "other/manifest"), "{}")
	for _, d := range []string{"rkt/status/x", "rkt/env/x"} {
		write(filepath.Join(stage1.RootfsDir, d), "")
	}
	k := &Composition{Dir: dir, Name: "web-1", App: &appc.App{App: types.App{Exec: types.Exec{"/bin/true"}, User: "0", Group: "0"}}}
	if err := disk.LockManifest(dir, k.Write); err != nil {
		t.Fatal(err)
	}
	read := func() (m struct {
		Future, Volumes json.RawMessage
		Apps            []struct {
			Name string
			Z    int
		}
		Annotations []struct{ Name, Value string }
	}) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "pod"))
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := read()
	if string(m.Future) != `{"x":1}` || string(m.Volumes) != `[{"name":"v","y":2}]` {
		t.Errorf("it has %s and %s", m.Future, m.Volumes)
	}
	if len(m.Apps) != 2 || m.Apps[0].Name != "other" || m.Apps[0].Z != 3 || m.Apps[1].Name != "web-1" {
		t.Errorf("its apps are %v", m.Apps)
	}
	if len(m.Annotations) != 2 || m.Annotations[0].Value != "false" || m.Annotations[1].Value != "d" {
		t.Errorf("its annotations are %v", m.Annotations)
	}
	if err := disk.LockManifest(dir, k.Delist); err != nil {
		t.Fatal(err)
	}
	if m := read(); len(m.Apps) != 1 || string(m.Future) != `{"x":1}` {
		t.Errorf("afterwards it has %v and %s", m.Apps, m.Future)
	}
}

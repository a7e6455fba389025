package fields

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

func TestAPointerCoversEverythingBelowIt(t *testing.T) {
	set := NewSet([]string{"/process/args", "/mounts/*/type"}, []string{"/a~1b"})
	for pointer, want := range map[string]bool{
		"/process": false, "/process/args": true, "/process/args/0": true, "/process/cwd": false,
		"/mounts/*/type": true, "/mounts/3/type": true, "/mounts/*/source": false, "/mounts/*": false, "/a/b": false,
	} {
		if set.Has(pointer) != want {
			t.Errorf("%s: %t", pointer, !want)
		}
	}
	var empty *Set
	if empty.Has("/process") {
		t.Error("the empty set covers a field")
	}
}

func TestFirstFindsOneFieldAndAllFindsTheOthersToo(t *testing.T) {
	read, err := spec.Read[json.RawMessage]([]byte(`{"hostname":"x","process":{"args":["a"],"cwd":"/","novel":1},"mounts":[{"type":"bind","source":"/"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	app := spec.App{Text: read.Text, Root: read.Root}
	set := NewSet([]string{"/process/args", "/mounts/*/type"})
	if got := set.First(app.Top()); !slices.Equal(got.Uncovered, []string{"/hostname"}) || len(got.Unknown) > 0 {
		t.Errorf("First: %+v", got)
	}
	got := set.All(app.Top())
	if !slices.Equal(got.Uncovered, []string{"/hostname", "/process/cwd", "/mounts/0/source"}) || !slices.Equal(got.Unknown, []string{"/process/novel"}) {
		t.Errorf("All: %+v", got)
	}
}

package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// requirements.md#B13
func TestFormsOfStdinAreToldApart(t *testing.T) {
	params := &bootapi.BootstrapParams{InstanceID: "c1", Namespace: "ns"}
	for name, c := range map[string]struct {
		stdin []byte
		form  form
		fails string
	}{
		"parameters":                         {encoded(t, params), formProtobuf, ""},
		"nothing":                            {nil, formJSON, ""},
		"options":                            {encoded(t, &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{8, 1}}), formJSON, ""},
		"options that decode as parameters":  {encoded(t, &anypb.Any{TypeUrl: "c1", Value: []byte("other")}), formJSON, ""},
		"parameters of another container":    {encoded(t, &bootapi.BootstrapParams{InstanceID: "c2", Namespace: "ns", ContainerdVersion: "2.4"}), 0, `"c2"`},
		"parameters of another namespace":    {encoded(t, &bootapi.BootstrapParams{InstanceID: "c1", Namespace: "no", ContainerdVersion: "2.4"}), 0, `"ns"`},
		"no protobuf":                        {[]byte("{}"), 0, "neither"},
		"a value without a type":             {encoded(t, &anypb.Any{Value: []byte("x")}), 0, "without a type"},
		"parameters cut in the middle":       {encoded(t, params)[:5], 0, "neither"},
		"parameters with an unknown field":   {append(encoded(t, params), 0xf8, 0x7f, 1), formProtobuf, ""},
		"parameters without the namespace":   {encoded(t, &bootapi.BootstrapParams{InstanceID: "c1"}), formJSON, ""},
		"parameters twice, the last one won": {append(encoded(t, params), encoded(t, &bootapi.BootstrapParams{InstanceID: "c2"})...), formJSON, ""},
	} {
		t.Run(name, func(t *testing.T) {
			env := func(key string) string { return map[string]string{"MAX_SHIM_VERSION": "2"}[key] }
			r, err := parseRequest(c.stdin, &flags{id: "c1", namespace: "ns", address: "/a"}, env)
			switch {
			case c.fails != "":
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("parsed as %+v, %v; want an error with %s", r, err, c.fails)
				}
			case err != nil:
				t.Error(err)
			case r.form != c.form || r.ID != "c1" || r.Namespace != "ns" || r.TTRPCAddress != "/a.ttrpc":
				t.Errorf("parsed as %+v, want form %d", r, c.form)
			}
		})
	}
}

// requirements.md#B10
func TestStdinIsBounded(t *testing.T) {
	if _, err := readStdin(stdinOf(t, make([]byte, maxStdin+1))); err == nil {
		t.Error("more than the limit was read")
	}
	if b, err := readStdin(stdinOf(t, make([]byte, maxStdin))); err != nil || len(b) != maxStdin {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}

func TestLogLevelIsTheNearestKnownOne(t *testing.T) {
	for level, want := range map[bootapi.LogLevel]string{
		-100: "trace", -8: "trace", -7: "trace", -6: "trace", -5: "debug", -4: "debug", -1: "info", 0: "info",
		1: "info", 3: "warn", 4: "warn", 8: "error", 9: "error", 10: "fatal", 11: "fatal", 12: "panic", 1 << 30: "panic",
	} {
		if got := levelName(level); got != want {
			t.Errorf("level %d is %s, want %s", level, got, want)
		}
	}
}

func FuzzStdinIsNeverTakenForAnotherContainers(f *testing.F) {
	f.Add([]byte(nil), "c1", "ns")
	f.Add(encoded(f, &bootapi.BootstrapParams{InstanceID: "c1", Namespace: "ns", ContainerdVersion: "2.4"}), "c1", "ns")
	f.Add(encoded(f, &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{8, 1}}), "c1", "ns")
	f.Add([]byte("\x0a\x02c1\x12\x02ns"), "c1", "ns")
	f.Fuzz(func(t *testing.T, stdin []byte, id, namespace string) {
		fl := &flags{id: id, namespace: namespace}
		if fl.check() != nil {
			return
		}
		r, err := parseRequest(stdin, fl, func(string) string { return "" })
		if err != nil {
			return
		}
		if r.ID != id || r.Namespace != namespace {
			t.Fatalf("flags say %q in %q, and it became %q in %q", id, namespace, r.ID, r.Namespace)
		}
		var p bootapi.BootstrapParams
		same := proto.Unmarshal(stdin, &p) == nil && p.InstanceID == id && p.Namespace == namespace
		if (r.form == formProtobuf) != same {
			t.Fatalf("form %d, and the parameters name the same container: %v", r.form, same)
		}
		if r.form != formProtobuf && len(r.Extensions) > 1 {
			t.Fatalf("older options became %d extensions", len(r.Extensions))
		}
	})
}

// requirements.md#B31
func TestSocketNameIsTheOneOfContainerd(t *testing.T) {
	// shim.SocketAddress of containerd 2.4.2 for namespace "default", socket path
	// "/run/containerd/containerd.sock" and id "pod1".
	const want = "/run/containerd/s/d7ddcf8855c574bb9f6303100a7919bd8f9f6e011c611945861f6fa26dc0c66d"
	got, err := socketPath("", "/run/containerd/containerd.sock", "default", "pod1")
	if err != nil || got != want {
		t.Errorf("socket is %s, %v; want %s", got, err, want)
	}
}

// requirements.md#G1
func TestGroupComesFromTheFirstAnnotationThatHasOne(t *testing.T) {
	for config, want := range map[string]string{
		`{}`:                      "id",
		`{"annotations":null}`:    "id",
		`{"annotations":{}}`:      "id",
		`{"process":{"args":[]}}`: "id",
		`{"annotations":{"io.kubernetes.cri.sandbox-id":"s"}}`:                                                                        "s",
		`{"annotations":{"io.kubernetes.cri.sandbox-id":"s","io.containerd.runc.v2.group":"r"}}`:                                      "r",
		`{"annotations":{"io.kubernetes.cri.sandbox-id":"s","io.containerd.runc.v2.group":"r","io.containerd.rkt.v1.group":"k"}}`:     "k",
		`{"annotations":{"io.containerd.runc.v2.group":"","io.kubernetes.cri.sandbox-id":"s"}}`:                                       "s",
		`{"process":{"annotations":{"io.containerd.rkt.v1.group":"no"}},"annotations":{"io.containerd.rkt.v1.group":"k"},"linux":{}}`: "k",
		`{"annotations":{"io.containerd.rkt.v1/stage1":"x","io.containerd.rkt.v10":"y","io.containerd.rkt.v1":"z"}}`:                  "id",
		// What follows is not looked at.
		`{"annotations":{"io.containerd.rkt.v1.group":"k"},"linux":garbage`: "k",
	} {
		if got, err := groupIn(bundleWith(t, config)); err != nil || got != want {
			t.Errorf("%s: group %q, %v; want %q", config, got, err, want)
		}
	}
}

// requirements.md#G1
func TestWrongAnnotationsAreRefused(t *testing.T) {
	for config, want := range map[string]string{
		``:                        "unexpected EOF",
		`[]`:                      "not a JSON object",
		`{"process":{`:            "unexpected EOF",
		`{"annotations":{"a":1}}`: "annotations",
		`{"annotations":{"a":"b"`: "unexpected EOF",
		`{"ociVersion":"1.0"`:     "unexpected EOF",
		`{"annotations":{"io.containerd.rkt.v1.grup":"k"}}`:           `"io.containerd.rkt.v1.group"`,
		`{"annotations":{"io.containerd.rkt.v1/stage":"k"}}`:          `"io.containerd.rkt.v1/stage1"`,
		`{"annotations":{"io.containerd.rkt.v1.group":"../ns2/pod"}}`: "not a name",
		`{"annotations":{"io.kubernetes.cri.sandbox-id":".."}}`:       "not a name",
	} {
		if got, err := groupIn(bundleWith(t, config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: group %q, %v; want an error with %s", config, got, err, want)
		}
	}
}

// groupIn returns the group of the container "id".
func groupIn(bundle string) (string, error) {
	annotations, err := annotationsOf(bundle)
	if err != nil {
		return "", err
	}
	return groupOf(annotations, "id")
}

func bundleWith(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), []byte(config))
	return dir
}

func FuzzGroupIsAlwaysAName(f *testing.F) {
	f.Add([]byte(`{"annotations":{"io.containerd.rkt.v1.group":"a/b"}}`))
	f.Add([]byte(`{"process":{},"annotations":{"io.kubernetes.cri.sandbox-id":"x"}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config []byte) {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
			t.Fatal(err)
		}
		group, err := groupIn(dir)
		if err == nil && (group == "" || checkName(group) != nil) {
			t.Fatalf("group %q", group)
		}
	})
}

// requirements.md#B17
func TestTheShimsCgroupIsAlwaysBelowTheRoot(t *testing.T) {
	if got := inCgroup("/sys/fs/cgroup/pids", "../../../etc"); got != "/sys/fs/cgroup/pids/etc" {
		t.Errorf("the path leads to %s", got)
	}
}

// requirements.md#R3
func TestOnlyAContainerdKnownToKeepEndedTasksIsTakenForOne(t *testing.T) {
	for version, drops := range map[string]bool{
		"": true, "1.7.35": true, "v2.3.9": true, "2.3.0-rc.1": true, "unknown": true, "2": true, "2.x": true,
		"2.4.2+unknown": false, "v2.4.0": false, "2.10.1": false, "3.0": false,
	} {
		if b := (&Bootstrap{ContainerdVersion: version}); b.DropsEnded() != drops {
			t.Errorf("%q: %v, want %v", version, !drops, drops)
		}
	}
}

package early

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// requirements.md#B13
func TestFormsOfStdinAreToldApart(t *testing.T) {
	params := &bootapi.BootstrapParams{InstanceID: "c1", Namespace: "ns"}
	for name, c := range map[string]struct {
		stdin []byte
		form  Form
		fails string
	}{
		"parameters":                         {encoded(t, params), FormProtobuf, ""},
		"nothing":                            {nil, FormJSON, ""},
		"options":                            {encoded(t, &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{8, 1}}), FormJSON, ""},
		"options that decode as parameters":  {encoded(t, &anypb.Any{TypeUrl: "c1", Value: []byte("other")}), FormJSON, ""},
		"parameters of another container":    {encoded(t, &bootapi.BootstrapParams{InstanceID: "c2", Namespace: "ns", ContainerdVersion: "2.4"}), 0, `"c2"`},
		"parameters of another namespace":    {encoded(t, &bootapi.BootstrapParams{InstanceID: "c1", Namespace: "no", ContainerdVersion: "2.4"}), 0, `"ns"`},
		"no protobuf":                        {[]byte("{}"), 0, "neither"},
		"a value without a type":             {encoded(t, &anypb.Any{Value: []byte("x")}), 0, "without a type"},
		"parameters cut in the middle":       {encoded(t, params)[:5], 0, "neither"},
		"parameters with an unknown field":   {append(encoded(t, params), 0xf8, 0x7f, 1), FormProtobuf, ""},
		"parameters without the namespace":   {encoded(t, &bootapi.BootstrapParams{InstanceID: "c1"}), FormJSON, ""},
		"parameters twice, the last one won": {append(encoded(t, params), encoded(t, &bootapi.BootstrapParams{InstanceID: "c2"})...), FormJSON, ""},
	} {
		t.Run(name, func(t *testing.T) {
			env := func(key string) string { return map[string]string{"MAX_SHIM_VERSION": "2"}[key] }
			r, err := ParseRequest(c.stdin, &Flags{ID: "c1", Namespace: "ns", Address: "/a"}, env)
			switch {
			case c.fails != "":
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("parsed as %+v, %v; want an error with %s", r, err, c.fails)
				}
			case err != nil:
				t.Error(err)
			case r.Form != c.form || r.ID != "c1" || r.Namespace != "ns" || r.TTRPCAddress != "/a.ttrpc":
				t.Errorf("parsed as %+v, want form %d", r, c.form)
			}
		})
	}
}

// requirements.md#B10
func TestStdinIsBounded(t *testing.T) {
	if _, err := ReadStdin(stdinOf(t, make([]byte, maxStdin+1))); err == nil {
		t.Error("more than the limit was read")
	}
	if b, err := ReadStdin(stdinOf(t, make([]byte, maxStdin))); err != nil || len(b) != maxStdin {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
}

func TestLogLevelIsTheNearestKnownOne(t *testing.T) {
	for level, want := range map[bootapi.LogLevel]string{
		-100: "trace", -8: "trace", -7: "trace", -6: "trace", -5: "debug", -4: "debug", -1: "info", 0: "info",
		1: "info", 3: "warn", 4: "warn", 8: "error", 9: "error", 10: "fatal", 11: "fatal", 12: "panic", 1 << 30: "panic",
	} {
		if got := levelName(int32(level)); got != want {
			t.Errorf("level %d is %s, want %s", level, got, want)
		}
	}
}

// requestOf returns the request for parameters that protobuf's library has read.
func requestOf(p *bootapi.BootstrapParams) *Request {
	r := &Request{
		Namespace: p.Namespace, ID: p.InstanceID, Address: p.ContainerdGrpcAddress, TTRPCAddress: p.ContainerdTtrpcAddress,
		ContainerdVersion: p.ContainerdVersion, LogLevel: levelName(int32(p.LogLevel)), SocketDir: p.GetSocketDir(), Form: FormProtobuf,
	}
	if r.TTRPCAddress == "" && r.Address != "" {
		r.TTRPCAddress = r.Address + ".ttrpc"
	}
	for _, e := range p.Extensions {
		value := e.GetValue().GetValue()
		if len(value) == 0 {
			value = nil
		}
		r.Extensions = append(r.Extensions, Extension{e.GetValue().GetTypeUrl(), value})
	}
	return r
}

// requirements.md#B11
func TestAnswersAreThoseOfProtobufsLibrary(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, claims := range []*types.MountCapabilities{{Types: []string{"erofs"}}, {Types: []string{"erofs"}, Transforms: []string{"format", "mkdir"}}} {
		want := &bootapi.BootstrapResult{Version: 3, Address: "unix://" + socket, Protocol: "ttrpc"}
		if err := want.AddExtension(claims); err != nil {
			t.Fatal(err)
		}
		if got := (&Request{Form: FormProtobuf}).Answer(socket); !bytes.Equal(got, encoded(t, want)) {
			t.Errorf("start answers %q; want %q", got, encoded(t, want))
		}
		if err := SayLayers(socket); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Date(2024, 2, 3, 4, 5, 6, 7, time.UTC)
	for exit, want := range map[Exit]*task.DeleteResponse{
		{PID: 1 << 31, Status: 137, At: at}: {Pid: 1 << 31, ExitStatus: 137, ExitedAt: timestamppb.New(at)},
		{At: at.Truncate(time.Second)}:      {ExitedAt: timestamppb.New(at.Truncate(time.Second))},
		{At: time.Unix(0, 0)}:               {ExitedAt: &timestamppb.Timestamp{}},
	} {
		var got bytes.Buffer
		if err := exit.Write(&got); err != nil || !bytes.Equal(got.Bytes(), encoded(t, want)) {
			t.Errorf("delete answers %q, %v; want %q", got.Bytes(), err, encoded(t, want))
		}
	}
}

func FuzzStdinIsNeverTakenForAnotherContainers(f *testing.F) {
	f.Add([]byte(nil), "c1", "ns")
	f.Add(encoded(f, &bootapi.BootstrapParams{InstanceID: "c1", Namespace: "ns", ContainerdVersion: "2.4"}), "c1", "ns")
	f.Add(encoded(f, &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{8, 1}}), "c1", "ns")
	f.Add([]byte("\x0a\x02c1\x12\x02ns"), "c1", "ns")
	f.Add([]byte("\x0a\x02c1\x12\x02ns\x0b\x18\x01\x0c"), "c1", "ns") // a group
	f.Add([]byte("\x0a\x02c1\x12\x02ns\x0b\x18\x01\x14"), "c1", "ns") // the end of another
	f.Add([]byte("\x0a\x02c1\x12\x02ns\x22\x01\xff"), "c1", "ns")     // not UTF-8
	f.Add([]byte("\x0a\x02c1\x12\x02ns\x18\xfc\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "c1", "ns")
	f.Add([]byte("\x0a\x02c1\x12\x02ns\x42\x0c\x0a\x04\x0a\x02ab\x0a\x04\x12\x02cd\x42\x00"), "c1", "ns")
	f.Fuzz(func(t *testing.T, stdin []byte, id, namespace string) {
		fl := &Flags{ID: id, Namespace: namespace}
		if fl.Check() != nil {
			return
		}
		r, err := ParseRequest(stdin, fl, func(string) string { return "" })
		if err != nil {
			var p bootapi.BootstrapParams
			var a anypb.Any
			if proto.Unmarshal(stdin, &p) == nil && p.InstanceID == id && p.Namespace == namespace {
				t.Fatalf("parameters of the container: %v", err)
			}
			if proto.Unmarshal(stdin, &a) == nil && len(a.ProtoReflect().GetUnknown()) == 0 && a.TypeUrl != "" {
				t.Fatalf("options: %v", err)
			}
			return
		}
		if r.ID != id || r.Namespace != namespace {
			t.Fatalf("flags say %q in %q, and it became %q in %q", id, namespace, r.ID, r.Namespace)
		}
		var p bootapi.BootstrapParams
		same := proto.Unmarshal(stdin, &p) == nil && p.InstanceID == id && p.Namespace == namespace
		if (r.Form == FormProtobuf) != same {
			t.Fatalf("form %d, and the parameters name the same container: %v", r.Form, same)
		}
		if same && !reflect.DeepEqual(r, requestOf(&p)) {
			t.Fatalf("parsed %+v, want %+v", r, requestOf(&p))
		}
		var a anypb.Any
		older := len(stdin) == 0 || proto.Unmarshal(stdin, &a) == nil && len(a.ProtoReflect().GetUnknown()) == 0 && (a.TypeUrl != "" || len(a.Value) == 0)
		if !same && !older {
			t.Fatalf("%q is neither, and became %+v", stdin, r)
		}
		if r.Form != FormProtobuf && len(r.Extensions) > 1 {
			t.Fatalf("older options became %d extensions", len(r.Extensions))
		}
	})
}

// requirements.md#B31
func TestSocketNameIsTheOneOfContainerd(t *testing.T) {
	// shim.SocketAddress of containerd 2.4.2 for namespace "default", socket path
	// "/run/containerd/containerd.sock" and id "pod1".
	const want = "/run/containerd/s/d7ddcf8855c574bb9f6303100a7919bd8f9f6e011c611945861f6fa26dc0c66d"
	got, err := SocketPath("", "/run/containerd/containerd.sock", "default", "pod1")
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
	annotations, err := AnnotationsOf(bundle)
	if err != nil {
		return "", err
	}
	return GroupOf(annotations, "id")
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

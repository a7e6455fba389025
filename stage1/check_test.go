package stage1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestAnExcusedStage1MayIgnoreWhatItDoesNotDeclare(t *testing.T) {
	stage1test.RequireRoot(t)
	i, err := openStore(t).Image(t.Context(), stage1test.Dir(t, nil), "")
	if err != nil {
		t.Fatal(err)
	}
	spec := readSpec(`{"hostname":"x","mounts":[{"options":["ro"],"type":"bind"}]}`)
	for _, c := range []struct {
		excused []string
		names   string
	}{
		{nil, "/hostname"},
		{[]string{"/hostname"}, "/mounts"},
		{[]string{"/hostname", "/mounts/*/options"}, "/mounts/0/type"},
		{[]string{"/hostname", "/mounts"}, ""},
	} {
		s := New(i, "other", children)
		s.Excuse(c.excused)
		err := s.CheckSpec(spec)
		if c.names == "" && err != nil || c.names != "" && (!errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "asks for "+c.names)) {
			t.Errorf("excused %q: %v, want %q", c.excused, err, c.names)
		}
	}
	if err := New(i, "other", children).CheckSpec(spec); err == nil {
		t.Error("what one pod's stage1 is excused, every other is, too")
	}
}

func TestCheckSpecNamesTheFirstFieldThatNobodyDeclares(t *testing.T) {
	declared := newFields(stage0Fields(), []string{
		"/process/args", "/process/env", "/mounts/*/destination", "/mounts/*/type", "/linux/namespaces",
		"/linux/sysctl/*", "/mounts/0/source", "/hooks/prestart", "/a~1b/m~0n", "/root/path",
	})
	for spec, want := range map[string]string{
		`{}`: "",
		`{"process":{"args":["sh"],"env":["A=b"]}}`:                                                  "",
		` { "process" : { "args" : [ "sh" ] } } `:                                                    "",
		`{"ociVersion":"1.3.0","annotations":{"a":"b"}}`:                                             "",
		`{"linux":{"cgroupsPath":"/x","resources":{"memory":{"limit":1}},"namespaces":[{}]}}`:        "",
		`{"hooks":{"poststop":[{"path":"/x"}],"prestart":[{"path":"/y"}]}}`:                          "",
		`{"hooks":{"poststop":[{}],"createRuntime":[{"path":"/x"}]}}`:                                "/hooks/createRuntime",
		`{"process":{"args":["sh"],"cwd":"/"}}`:                                                      "/process/cwd",
		`{"process":{"cwd":"","user":{"uid":0,"gid":0},"rlimits":[],"capabilities":{},"tty":false}}`: "",
		`{"process":{"user":{"uid":0,"gid":7}}}`:                                                     "/process/user",
		`{"process":{"user":{"additionalGids":[0]}}}`:                                                "/process/user",
		`{"process":{"oomScoreAdj":-0.0e7,"x":0,"y":0.00}}`:                                          "",
		`{"process":{"oomScoreAdj":-999}}`:                                                           "/process/oomScoreAdj",
		`{"process":{"oomScoreAdj":1e-5}}`:                                                           "/process/oomScoreAdj",
		`{"process":null}`:                                                                           "",
		`{"process":7}`:                                                                              "/process",
		`{"process":"x"}`:                                                                            "/process",
		`{"mounts":[{"destination":"/","type":"x"},{"destination":"/p","options":["ro"]}]}`:          "/mounts/1/options",
		`{"mounts":[{"source":"a"}]}`:                                                                "",
		`{"mounts":[{},{"source":"a"}]}`:                                                             "/mounts/1/source",
		`{"mounts":[{"destination":"/","options":[]}]}`:                                              "",
		`{"linux":{"sysctl":{"net.a/b":"1"},"seccomp":{"defaultAction":"SCMP_ACT_ALLOW"}}}`:          "/linux/seccomp",
		`{"linux":{"resources":{},"devices":[{"path":"/dev/x"}]}}`:                                   "/linux/devices",
		`{"Process":{"args":["sh"]}}`:                                                                "/Process",
		`{"process":{"Args":["sh"]}}`:                                                                "/process/Args",
		`{"vm":true}`:                                                                                "/vm",
		`{"vm":false,"x":{"y":{"z":[]}}}`:                                                            "",
		`{"x":{"y":{"z":[],"w":"}"}}}`:                                                               "/x",
		`{"a/b":{"m~n":"x"}}`:                                                                        "",
		`{"a/b":{"m~m":"x"}}`:                                                                        "/a~1b/m~0m",
		`{"proc\u0065ss":{"args":["\"}"],"\u0063wd":"/"}}`:                                           "/process/cwd",
		`{"root":{"path":"rootfs","readonly":true}}`:                                                 "/root/readonly",
		`{"root":{"path":"a\\\"b","readonly":false}}`:                                                "",
		`{"":"x"}`: "/",
		"{\"process\"\n:\t{\r\n\"args\": [\"a\",\"b\"] ,\n\"noNewPrivileges\" : true }\n}":             "/process/noNewPrivileges",
		`{"process":{"args":["sh"]},"process":{"cwd":"/"}}`:                                            "/process/cwd",
		`{"solaris":{},"windows":null,"zos":{"namespaces":[]},"domainname":"","hostname":"h","x":"y"}`: "/hostname",
	} {
		err := checkSpec(readSpec(spec).Root, declared, "fake")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", spec, err)
		case want == "":
		case !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), " "+want+",") || !strings.Contains(err.Error(), "stage1 fake"):
			t.Errorf("%s: error %v, want one about %s", spec, err, want)
		}
	}
	for _, spec := range []string{"null", "[]", "7", ` "x" `} {
		if err := checkSpec(readSpec(spec).Root, declared, "fake"); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// The process of an exec is checked as that of a config.json.
func TestTheProcessOfAnExecIsCheckedWhereItStandsInASpec(t *testing.T) {
	for _, c := range []struct {
		declared []string
		process  string
		names    string
	}{
		{nil, `{"args":["sh"]}`, "/process"},
		{nil, `{"args":[],"cwd":""}`, ""},
		{[]string{"/process"}, `{"args":["sh"],"x":{"y":1}}`, ""},
		{[]string{"/process/args"}, `{"args":["sh"]}`, ""},
		{[]string{"/process/args"}, `{"args":["sh"],"a/b":{"c":[0]}}`, "/process/a~1b"},
		{[]string{"/process/args", "/process/user/uid"}, `{"args":["sh"],"user":{"gid":1,"uid":2}}`, "/process/user/gid"},
	} {
		s := &Stage1{name: "fake", declared: func() *fields { return newFields(c.declared) }}
		err := s.CheckProcess(readProcess(c.process))
		if whole := s.CheckSpec(readSpec(`{"process":` + c.process + `}`)); fmt.Sprint(err) != fmt.Sprint(whole) {
			t.Errorf("%s: %v, and in a spec %v", c.process, err, whole)
		}
		if c.names == "" && err != nil || c.names != "" && (!errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "asks for "+c.names+",")) {
			t.Errorf("%q: %s: %v, want %q", c.declared, c.process, err, c.names)
		}
	}
}

func TestAnImageWithoutFeaturesDeclaresNothing(t *testing.T) {
	stage1test.RequireRoot(t)
	i, err := openStore(t).Image(t.Context(), stage1test.Dir(t, nil), "")
	if err != nil {
		t.Fatal(err)
	}
	s := New(i, "other", children)
	if err := s.CheckSpec(readSpec(`{"ociVersion":"1.3.0","process":{"args":["sh"]}}`)); !errdefs.IsNotImplemented(err) ||
		!strings.Contains(err.Error(), "stage1 other") {
		t.Errorf("error %v", err)
	}
	if s.OCIFeatures() != nil {
		t.Errorf("features %s", s.OCIFeatures())
	}
}

// The walker agrees with a decoder that builds everything, on whatever text.
func FuzzCheckSpec(f *testing.F) {
	f.Add([]byte(`{"process":{"args":["sh"],"cwd":"/"},"mounts":[{"type":"x","a":[1,{}]}]}`))
	f.Add([]byte(`{"a":{"b":[0,"",null]},"a":{"b":1e0}}`))
	f.Add([]byte("{\"\\u0061\" : {\"\\\"\":\"\\\\\"} }"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		err := checkSpec(readSpec(string(text)).Root, newFields([]string{"/a/*/b", "/a/c", "/process/args"}), "fake")
		var doc any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		object, ok := doc.(map[string]any)
		if !ok {
			return
		}
		asks := func() bool {
			for key, v := range object {
				if key != "a" && key != "process" && asksFor(v) {
					return true
				}
			}
			return false
		}
		// A decoder keeps the last of equal keys, the walker sees them all: it
		// may refuse more, and never less.
		if asks() && err == nil {
			t.Errorf("%s was let through", text)
		}
	})
}

func asksFor(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case json.Number:
		digits, _, _ := strings.Cut(strings.ToLower(v.String()), "e")
		return strings.Trim(digits, "-.0") != ""
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		for _, m := range v {
			if asksFor(m) {
				return true
			}
		}
	}
	return false
}

// BenchmarkCheckSpec checks containerd's default spec with a default seccomp
// profile in it.
func BenchmarkCheckSpec(b *testing.B) {
	spec, err := os.ReadFile(filepath.Join("testdata", "config.json"))
	if err != nil {
		b.Fatal(err)
	}
	declared := newFields(stage0Fields(), []string{
		"/process/args", "/process/env", "/process/cwd", "/process/user", "/process/capabilities", "/process/rlimits",
		"/process/noNewPrivileges", "/root/path", "/mounts/*/destination", "/mounts/*/type", "/mounts/*/source",
		"/mounts/*/options", "/linux/namespaces", "/linux/maskedPaths", "/linux/readonlyPaths", "/linux/seccomp",
	})
	root := readSpec(string(spec)).Root
	b.SetBytes(int64(len(spec)))
	b.ReportAllocs()
	for b.Loop() {
		if err := checkSpec(root, declared, "fake"); err != nil {
			b.Fatal(err)
		}
	}
}

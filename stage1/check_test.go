package stage1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/fields"
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
		s.Abide(Rules{Excused: c.excused})
		_, err := s.CheckSpec(spec)
		if c.names == "" && err != nil || c.names != "" && (!errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "asks for "+c.names)) {
			t.Errorf("excused %q: %v, want %q", c.excused, err, c.names)
		}
	}
	if _, err := New(i, "other", children).CheckSpec(spec); err == nil {
		t.Error("what one pod's stage1 is excused, every other is, too")
	}
}

// declaring returns a stage1 that declares fields beside those of stage 0.
func declaring(pointers ...string) *Stage1 {
	return &Stage1{name: "fake", declared: func() *fields.Set { return fields.NewSet(Stage0Fields(false), pointers) }}
}

func refusal(s *Stage1, spec string) error {
	_, err := s.CheckSpec(readSpec(spec))
	return err
}

func TestCheckSpecNamesTheFirstFieldThatNobodyDeclares(t *testing.T) {
	fake := declaring("/process/args", "/process/env", "/mounts/*/destination", "/mounts/*/type", "/linux/namespaces",
		"/linux/sysctl/*", "/mounts/0/source", "/hooks/prestart", "/a~1b/m~0n", "/root/path")
	for spec, want := range map[string]string{
		`{}`: "",
		`{"process":{"args":["sh"],"env":["A=b"]}}`:                                                    "",
		` { "process" : { "args" : [ "sh" ] } } `:                                                      "",
		`{"ociVersion":"1.3.0","annotations":{"a":"b"}}`:                                               "",
		`{"linux":{"cgroupsPath":"/x","resources":{"memory":{"limit":1}},"namespaces":[{}]}}`:          "",
		`{"hooks":{"poststop":[{"path":"/x"}],"prestart":[{"path":"/y"}]}}`:                            "",
		`{"hooks":{"poststop":[{}],"createRuntime":[{"path":"/x"}]}}`:                                  "/hooks/createRuntime",
		`{"process":{"args":["sh"],"cwd":"/"}}`:                                                        "/process/cwd",
		`{"process":{"cwd":"","user":{"uid":0,"gid":0},"rlimits":[],"tty":false}}`:                     "",
		`{"process":{"user":{"uid":0,"gid":7}}}`:                                                       "/process/user",
		`{"process":{"user":{"additionalGids":[0]}}}`:                                                  "/process/user",
		`{"linux":{"intelRdt":null,"seccomp":null},"process":{"user":{"uid":-0,"gid":0}}}`:             "",
		`{"process":{"consoleSize":{"width":1e-5}}}`:                                                   "/process/consoleSize",
		`{"process":{"consoleSize":{"width":-0.0e7,"height":0.00}}}`:                                   "",
		`{"process":{"oomScoreAdj":-999}}`:                                                             "/process/oomScoreAdj",
		`{"process":{"oomScoreAdj":0}}`:                                                                "/process/oomScoreAdj",
		`{"process":{"oomScoreAdj":null}}`:                                                             "",
		`{"process":{"capabilities":{}}}`:                                                              "/process/capabilities",
		`{"process":{"capabilities":{"bounding":[],"ambient":[]}}}`:                                    "/process/capabilities",
		`{"process":{"user":{"umask":0}}}`:                                                             "/process/user",
		`{"linux":{"netDevices":{"eth1":{}}}}`:                                                         "/linux/netDevices",
		`{"linux":{"netDevices":{}}}`:                                                                  "",
		`{"linux":{"intelRdt":{}}}`:                                                                    "/linux/intelRdt",
		`{"process":null}`:                                                                             "",
		`{"process":7}`:                                                                                "/process",
		`{"process":"x"}`:                                                                              "/process",
		`{"mounts":[{"destination":"/","type":"x"},{"destination":"/p","options":["ro"]}]}`:            "/mounts/1/options",
		`{"mounts":[{"source":"a"}]}`:                                                                  "",
		`{"mounts":[{},{"source":"a"}]}`:                                                               "/mounts/1/source",
		`{"mounts":[{"destination":"/","options":[]}]}`:                                                "",
		`{"linux":{"sysctl":{"net.a/b":"1"},"seccomp":{"defaultAction":"SCMP_ACT_ALLOW"}}}`:            "/linux/seccomp",
		`{"linux":{"resources":{},"devices":[{"path":"/dev/x"}]}}`:                                     "/linux/devices",
		`{"Process":{"args":["sh"],"CWD":"/"}}`:                                                        "/Process/CWD",
		`{"process":{"Args":["sh"]}}`:                                                                  "",
		`{"vm":{"kernel":{"path":"/k"}}}`:                                                              "/vm",
		`{"solaris":{"milestone":"}"}}`:                                                                "/solaris",
		`{"a/b":{"m~n":"x"}}`:                                                                          "",
		`{"a/b":{"m~m":"x"}}`:                                                                          "/a~1b/m~0m",
		`{"proc\u0065ss":{"args":["\"}"],"\u0063wd":"/"}}`:                                             "/process/cwd",
		`{"root":{"path":"rootfs","readonly":true}}`:                                                   "/root/readonly",
		`{"root":{"path":"a\\\"b","readonly":false}}`:                                                  "",
		"{\"process\"\n:\t{\r\n\"args\": [\"a\",\"b\"] ,\n\"noNewPrivileges\" : true }\n}":             "/process/noNewPrivileges",
		`{"process":{"args":["sh"]},"process":{"cwd":"/"}}`:                                            "/process/cwd",
		`{"solaris":{},"windows":null,"zos":{"namespaces":[]},"domainname":"","x":"y","hostname":"h"}`: "/hostname",
	} {
		err := refusal(fake, spec)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", spec, err)
		case want == "":
		case !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), " "+want+",") || !strings.Contains(err.Error(), "stage1 fake"):
			t.Errorf("%s: error %v, want one about %s", spec, err, want)
		}
	}
	for _, spec := range []string{"null", "[]", "7", ` "x" `} {
		if err := refusal(fake, spec); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// A stage1 that declares only some sets of capabilities cannot drop those of all
// sets.
func TestAnObjectThatAsksByBeingThereIsCoveredAsAWholeOrByItsMembers(t *testing.T) {
	for _, c := range []struct{ declared, spec, names string }{
		{"/process/capabilities/bounding", `{"process":{"capabilities":{}}}`, "/process/capabilities"},
		{"/process/capabilities/bounding", `{"process":{"capabilities":{"bounding":[]}}}`, ""},
		{"/process/capabilities/bounding", `{"process":{"capabilities":{"bounding":[],"ambient":[]}}}`, "/process/capabilities/ambient"},
		{"/process/capabilities", `{"process":{"capabilities":{}}}`, ""},
		{"/linux/netDevices/*/name", `{"linux":{"netDevices":{"eth0":{"name":"x"}}}}`, ""},
		{"/linux/netDevices/*/name", `{"linux":{"netDevices":{"eth0":{"name":"x"},"eth/1":{}}}}`, "/linux/netDevices/eth~11"},
		{"/process/rlimits/*/type", `{"process":{"rlimits":[{"type":"RLIMIT_CORE","soft":0}]}}`, "/process/rlimits/0/soft"},
	} {
		err := refusal(declaring(c.declared), c.spec)
		if c.names == "" && err != nil || c.names != "" && (err == nil || !strings.Contains(err.Error(), "asks for "+c.names+",")) {
			t.Errorf("%s with %s: %v, want %q", c.spec, c.declared, err, c.names)
		}
	}
}

// The process of an exec is checked like the process in a config.json.
func TestTheProcessOfAnExecIsCheckedWhereItStandsInASpec(t *testing.T) {
	for _, c := range []struct {
		declared []string
		process  string
		names    string
	}{
		{nil, `{"args":["sh"]}`, "/process"},
		{nil, `{"x":1}`, ""},
		{nil, `{"args":[],"cwd":""}`, ""},
		{[]string{"/process"}, `{"args":["sh"],"x":{"y":1}}`, ""},
		{[]string{"/process/args"}, `{"args":["sh"]}`, ""},
		{[]string{"/process/args", "/process/a~1b/d"}, `{"args":["sh"],"a/b":{"c":[0]}}`, "/process/a~1b/c"},
		{[]string{"/process/args", "/process/user/uid"}, `{"args":["sh"],"user":{"gid":1,"uid":2}}`, "/process/user/gid"},
	} {
		s := declaring(c.declared...)
		_, err := s.CheckProcess(readProcess(c.process))
		if _, whole := s.CheckSpec(readSpec(`{"process":` + c.process + `}`)); fmt.Sprint(err) != fmt.Sprint(whole) {
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
	if _, err := s.CheckSpec(readSpec(`{"ociVersion":"1.3.0","process":{"args":["sh"]}}`)); !errdefs.IsNotImplemented(err) ||
		!strings.Contains(err.Error(), "stage1 other") {
		t.Errorf("error %v", err)
	}
	if s.OCIFeatures() != nil {
		t.Errorf("features %s", s.OCIFeatures())
	}
}

// In any text, each field is declared, or in the spec, or named as unknown.
func FuzzCheckSpec(f *testing.F) {
	f.Add([]byte(`{"process":{"args":["sh"],"cwd":"/"},"mounts":[{"type":"x","a":[1,{}]}]}`))
	f.Add([]byte(`{"a":{"b":[0,"",null]},"a":{"b":1e0},"b":1e-400}`))
	f.Add([]byte("{\"\\u0061\" : {\"\\\"\":\"\\\\\"} }"))
	top := readSpec("{}").Top()
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]json.RawMessage
		if !json.Valid(text) || json.Unmarshal(text, &object) != nil || object == nil {
			return
		}
		unknown, err := declaring("/a/*/b", "/a/c", "/process/args").CheckSpec(readSpec(string(text)))
		for key, v := range object {
			if key != "a" && string(v) != "null" && top.Meant(key) == "" && len(unknown) == 0 && err == nil {
				t.Errorf("%s: %q is not named", text, key)
			}
		}
	})
}

// BenchmarkCheckSpec checks containerd's default spec with a default seccomp
// profile in it.
func BenchmarkCheckSpec(b *testing.B) {
	spec, err := os.ReadFile(filepath.Join("testdata", "config.json"))
	if err != nil {
		b.Fatal(err)
	}
	fake := declaring(
		"/process/args", "/process/env", "/process/cwd", "/process/user", "/process/capabilities", "/process/rlimits",
		"/process/noNewPrivileges", "/root/path", "/mounts/*/destination", "/mounts/*/type", "/mounts/*/source",
		"/mounts/*/options", "/linux/namespaces", "/linux/maskedPaths", "/linux/readonlyPaths", "/linux/seccomp",
	)
	app := readSpec(string(spec))
	b.SetBytes(int64(len(spec)))
	b.ReportAllocs()
	for b.Loop() {
		if unknown, err := fake.CheckSpec(app); err != nil || len(unknown) > 0 {
			b.Fatal(unknown, err)
		}
	}
}

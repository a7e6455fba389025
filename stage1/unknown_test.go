package stage1

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

func TestFieldsThatNoSpecHasAreNamedAtEveryDepth(t *testing.T) {
	s := declaring("/process", "/root", "/mounts", "/linux/namespaces", "/linux/novel", "/linux/part/known", "/hooks/prestart")
	for text, want := range map[string][]string{
		`{"novel":1e-400,"x":1e400,"null":null}`:                                       {"/novel", "/x"},
		`{"novel":{"x":null}}`:                                                         {"/novel"},
		`{"procss":{"args":["sh"]}}`:                                                   {"/procss (is process meant?)"},
		`{"Process":{"args":["sh"]}}`:                                                  {"/Process (is process meant?)"},
		`{"process":{"capabilities":{"boundng":[]},"user":{"a/b~":0}}}`:                {"/process/capabilities/boundng (is bounding meant?)", "/process/user/a~1b~0"},
		`{"mounts":[{},{"option":["ro"]}],"root":{"novel":[]}}`:                        {"/mounts/1/option (is options meant?)", "/root/novel"},
		`{"linux":{"novel":{"a":1},"part":{"known":1},"namespaces":[{"inode":1}]}}`:    {"/linux/namespaces/0/inode"},
		`{"linux":{"resources":{"cpu":{"quanta":4},"unified":{"a":"b"}}}}`:             {"/linux/resources/cpu/quanta (is quota meant?)"},
		`{"linux":{"resources":{"blockIO":{"weightDevice":[{"major":8,"burst":2}]}}}}`: {"/linux/resources/blockIO/weightDevice/0/burst"},
		`{"linux":{"sysctl":{},"seccomp":null},"annotations":{"x":"y"}}`:               nil,
		"{\"\\u001b[2J\\n\":1}":                                                        {`/\x1b[2J\n`},
		`{"` + strings.Repeat("n", 99) + `":1}`:                                        {"/" + strings.Repeat("n", 64) + "…"},
	} {
		if got, err := s.CheckSpec(readSpec(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, names := range map[string]string{
		`{"linux":{"part":{"known":1,"other":2}}}`:        "/linux/part/other", // the stage1 knows the field in part
		`{"novel":1,"Linux":{"Devices":[{"path":"/x"}]}}`: "/Linux/Devices",    // encoding/json takes it for devices
		`{"novel":1,"windows":{"novel":1,"hyperv":{}}}`:   "/windows",
		`{"novel":1,"vm":{"hwConfig":{"vcpus":0}}}`:       "/vm",
	} {
		if _, err := s.CheckSpec(readSpec(text)); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "asks for "+names+",") {
			t.Errorf("%s: %v, want %s", text, err, names)
		}
	}
}

func TestOfManyUnknownFieldsTheFirstAreNamed(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `,"novel%03d":1`, i)
	}
	got, err := declaring().CheckSpec(readSpec("{" + text.String()[1:] + "}"))
	if err != nil || len(got) != 17 || got[0] != "/novel000" || got[15] != "/novel015" || got[16] != "and 984 more" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUnknownFieldsOfExecsAndUpdatesAreNamedToo(t *testing.T) {
	s := declaring("/process")
	if got, err := s.CheckProcess(readProcess(`{"args":["sh"],"arg":[],"user":{"novel":1}}`)); err != nil ||
		!slices.Equal(got, []string{"/process/arg (is args meant?)", "/process/user/novel"}) {
		t.Errorf("%q, %v", got, err)
	}
	limits, err := spec.Read[specs.LinuxResources]([]byte(`{"cpu":{"share":2,"shares":2,"x":1e-400},"novel":{"a":0}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.CheckResources(limits); err != nil ||
		!slices.Equal(got, []string{"/linux/resources/cpu/share (is shares meant?)", "/linux/resources/cpu/x", "/linux/resources/novel"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAnOperatorMayRefuseUnknownFields(t *testing.T) {
	s := declaring("/process", "/linux/known")
	s.rules.RefuseUnknown = true
	for text, names := range map[string]string{
		`{"process":{"args":["sh"]},"linux":{"known":1}}`: "",
		`{"process":{"agrs":["sh"]}}`:                     "/process/agrs, which",
		`{"novel":0}`:                                     "/novel",
		`{"Process":{}}`:                                  "/Process (is process meant?)",
	} {
		_, err := s.CheckSpec(readSpec(text))
		if names == "" && err != nil || names != "" && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), names) || !strings.Contains(err.Error(), "configuration")) {
			t.Errorf("%s: %v, want %q", text, err, names)
		}
	}
}

func TestUnknownFieldsAreInTheJournal(t *testing.T) {
	s, dir := declaring(), t.TempDir()
	s.NoteUnknown(pod.Call{Dir: dir, Request: abi.Request{App: "web", Exec: "probe"}}, []string{"/process/novel"})
	got, err := journal.Read(dir)
	if err != nil || len(got) != 1 || got[0].App != "web" || got[0].Exec != "probe" || got[0].Time.IsZero() || !slices.Equal(got[0].Unknown, []string{"/process/novel"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

package stage1

import (
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestAVerdictNamesEveryFieldAndAgreesWithCheckSpec(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Image{Features: `{"fields":["/process/args","/process/cwd","/root/path","/linux/namespaces"]}`}.Dir(t)
	i, err := openStore(t).Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spec                      string
		excused                   []string
		refuseUnknown             bool
		refused, ignored, unknown []string
	}{
		"nothing":     {spec: `{"ociVersion":"1.0.0","process":{"args":["a"],"cwd":"/"},"root":{"path":"r"}}`},
		"two":         {spec: `{"hostname":"x","process":{"env":["A=b"],"args":["a"]},"domainname":"y"}`, refused: []string{"/hostname", "/process/env", "/domainname"}},
		"excused":     {spec: `{"hostname":"x","process":{"env":["A=b"]}}`, excused: []string{"/hostname"}, refused: []string{"/process/env"}, ignored: []string{"/hostname"}},
		"all excused": {spec: `{"hostname":"x","process":{"env":["A=b"]}}`, excused: []string{"/hostname", "/process/env"}, ignored: []string{"/hostname", "/process/env"}},
		"in part":     {spec: `{"mounts":[{"type":"bind","options":["ro"]}]}`, excused: []string{"/mounts/*/options"}, refused: []string{"/mounts/0/type"}},
		"unknown":     {spec: `{"hostnam":"x"}`, unknown: []string{"/hostnam (is hostname meant?)"}},
		"unknown refused": {
			spec: `{"hostnam":"x"}`, refuseUnknown: true, unknown: []string{"/hostnam (is hostname meant?)"},
		},
		"limits":       {spec: `{"linux":{"resources":{"memory":{"limit":5}}}}`},
		"asks, though": {spec: `{"process":{"capabilities":{}}}`, refused: []string{"/process/capabilities"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(i, "other", children)
			s.Abide(Rules{Excused: c.excused, RefuseUnknown: c.refuseUnknown})
			v := s.Judge(readSpec(c.spec))
			if !slices.Equal(v.Refused, c.refused) || !slices.Equal(v.Excused, c.ignored) || !slices.Equal(v.Unknown, c.unknown) {
				t.Errorf("%+v", v)
			}
			_, err := s.CheckSpec(readSpec(c.spec))
			wrong := len(v.Refused) > 0 || v.RefuseUnknown && len(v.Unknown) > 0
			if wrong != (err != nil) || len(v.Refused) > 0 && !strings.Contains(err.Error(), "asks for "+v.Refused[0]+",") {
				t.Errorf("CheckSpec: %v, and the verdict is %+v", err, v)
			}
		})
	}
}

package cgroup

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// requirements.md#C1
func TestPathForms(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{"/default/foo", "/default/foo"},
		{"/kubepods/burstable/pod1/ctr", "/kubepods/burstable/pod1/ctr"},
		{"/a/../b//c/", "/b/c"},
		{"", "/ns/id"},
		{"relative/path", "relative/path"},
		{"a:b/c", "a:b/c"},
		{"./a//b/", "a/b"},
		{"../../../system.slice/a", "system.slice/a"},
		{"a/../../b", "b"},
		{"system.slice:nerdctl:abc", "/system.slice/nerdctl-abc.scope"},
		{":cri-containerd:abc", "/system.slice/cri-containerd-abc.scope"},
		{"kubepods-burstable-podx.slice:cri-containerd:abc",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-abc.scope"},
		{"-.slice:docker:abc", "/docker-abc.scope"},
		{"a.slice::abc", "/a.slice/abc.scope"},
		{"a.slice:x:b.slice", "/a.slice/b.slice"},
	} {
		got, err := Path{Spec: tc.spec, Namespace: "ns", ID: "id"}.Resolve()
		if err != nil || got != tc.want {
			t.Errorf("%q: %q, %v; want %q", tc.spec, got, err, tc.want)
		}
	}
	for _, spec := range []string{"/", "//", "/..", "a.slice:b:", "a:b:c", "a--b.slice:b:c", "a.slice:x:..", ".slice:a:b", "/a\x00b",
		".", "..", "../../..", "a/..", "a\nb", "/a\x1b[2J", "a\tb"} {
		if got, err := (Path{Spec: spec, Namespace: "ns", ID: "id"}).Resolve(); err == nil {
			t.Errorf("%q: accepted as %q", spec, got)
		}
	}
	if got, err := (Path{Namespace: "..", ID: ".."}).Resolve(); err == nil {
		t.Errorf("namespace and id of dots: %q", got)
	}
}

func FuzzResolveStaysBelowTheRoot(f *testing.F) {
	f.Add("/a/b", "ns", "id")
	f.Add("a.slice:b:c", "ns", "id")
	f.Add("", "..", "x")
	f.Add("../../a/./b", "ns", "id")
	f.Fuzz(func(t *testing.T, spec, ns, id string) {
		p, err := Path{Spec: spec, Namespace: ns, ID: id}.Resolve()
		if err != nil {
			return
		}
		if strings.HasPrefix(p, "/") == strings.HasPrefix(spec, "/") || spec == "" || strings.Count(spec, ":") == 2 {
			p = filepath.Join("/", p)
		}
		if p == "/" || filepath.Join("/", p) != p || strings.Contains(p+"/", "/../") || strings.ContainsFunc(p, unicode.IsControl) {
			t.Errorf("%q, %q, %q: %q", spec, ns, id, p)
		}
	})
}

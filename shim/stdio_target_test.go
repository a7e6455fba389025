package shim

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestTargetsAreReadFromPathsAndURIs(t *testing.T) {
	for _, c := range []struct {
		in   string
		want target
		err  string
	}{
		{"", target{}, ""},
		{"/run/fifo/a b%20:c", target{kind: toPath, path: "/run/fifo/a b%20:c"}, ""},
		{"fifo:///run/f", target{kind: toPath, path: "/run/f"}, ""},
		{"file:///var/log/x", target{kind: toFile, path: "/var/log/x"}, ""},
		{"binary:///bin/l", target{kind: toLogger, path: "/bin/l"}, ""},
		{"binary:///bin/l?b=2&a=1&b=3", target{kind: toLogger, path: "/bin/l", args: []string{"b", "2", "a", "1", "b", "3"}}, ""},
		{"binary:///bin/l?-v&k=", target{kind: toLogger, path: "/bin/l", args: []string{"-v", "", "k", ""}}, ""},
		{"binary:///bin/l?p=%2Fa%20b+c", target{kind: toLogger, path: "/bin/l", args: []string{"p", "/a b c"}}, ""},
		{"binary-v2:///bin/l", target{kind: toLogger, path: "/bin/l", strict: true}, ""},
		{"binary:///bin/l?a=%zz", target{}, "%zz"},
		{"binary://logger", target{}, "absolute"},
		{"file:relative", target{}, "absolute"},
		{"relative", target{}, "not supported"},
		{"ttrpc+unix:///run/s?stream_id=1", target{}, `"ttrpc+unix"`},
		{"npipe:////x", target{}, `"npipe"`},
		{"%", target{}, "%"},
	} {
		got, err := parseTarget(c.in)
		if c.err != "" {
			if err == nil || !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want InvalidArgument with %q", c.in, err, c.err)
			}
			continue
		}
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%q: %+v, %v; want %+v", c.in, got, err, c.want)
		}
	}
}

func FuzzTargets(f *testing.F) {
	for _, s := range []string{"", "/a", "binary:///a?b=c&d", "file:///x", "a:b", "%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget(s)
		if err == nil && got.kind != toNothing && !filepath.IsAbs(got.path) {
			t.Errorf("%q gives the path %q", s, got.path)
		}
		if len(got.args)%2 != 0 {
			t.Errorf("%q gives %d arguments", s, len(got.args))
		}
	})
}

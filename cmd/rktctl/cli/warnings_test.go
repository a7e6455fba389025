package cli

import (
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestNamesOfAnImageThatNothingKnowsAreWarnings(t *testing.T) {
	bundled(t, "native")
	image := stage1test.Image{
		Features:    `{"fields": ["/linux/levitation"]}`,
		Annotations: map[string]string{"coreos.com/rkt/stage1/levitate": "/socket"},
	}.Dir(t)
	file := configured(t, "[stage1.mine]", "path = '"+image+"'")
	for _, args := range [][]string{{"config", "check"}, {"stage1", "list"}} {
		got := rktctl(t, file, args...)
		for _, want := range []string{"warning: stage1 ", "unknown annotation coreos.com/rkt/stage1/levitate", `"/linux/levitation"`} {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%q: stderr %q does not say %q", args, got.stderr, want)
			}
		}
		if got.code != 0 {
			t.Errorf("%q: exit status %d, %s", args, got.code, got.stdout)
		}
	}
	if got := rktctl(t, file, "stage1", "list", "--json"); !strings.Contains(got.stdout, `"warnings": [`) {
		t.Errorf("--json: %s", got.stdout)
	}
}

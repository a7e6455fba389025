package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func FuzzManifest(f *testing.F) {
	text, err := os.ReadFile(filepath.Join(stage1test.Dir(f, nil), "manifest"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"acKind":"ImageManifest","acVersion":"1.2.3","name":"x","annotations":[{"name":"coreos.com/rkt/stage1/run","value":"/../x"}]}`))
	f.Add([]byte(`{"acKind":"ImageManifest","acVersion":"1.2.3","name":"x","app":{"exec":["/x"],"user":"0","group":"0","isolators":[{"name":"resource/memory"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text, "manifest")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "manifest") {
				t.Errorf("the error %q does not name the file", err)
			}
			return
		}
		for e, p := range m.paths {
			if checkPath(p) != nil || strings.Contains(p, "..") && filepath.Clean(p) != p {
				t.Errorf("%s: %q", e, p)
			}
		}
	})
}

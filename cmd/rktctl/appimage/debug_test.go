package appimage

import (
	"os"
	"path/filepath"
	"testing"
)

// The collector looks for trees in use in the directories of debug apps, too.
func TestTheTreeOfADebugAppIsInUse(t *testing.T) {
	data := t.TempDir()
	s, err := OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	for dir, is := range map[string]bool{"debug/u/d": true, "pods/run/u/appsinfo/a": false, "debug/u": false, "local/u/apps/a": true, "debug/u/d/rootfs": false} {
		if s.ofApp(filepath.Join(data, dir)) != is {
			t.Errorf("%s: %v", dir, !is)
		}
	}
	dir := filepath.Join(data, "debug", "u", "d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, IDFile), []byte("sha256-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	used, err := s.used()
	if err != nil || used["sha256-1"] != "debug/u/d" {
		t.Errorf("%v, %v", used, err)
	}
}

package appimage

import (
	"os"
	"path/filepath"
	"testing"
)

// A debug app's directory is in its pod, in which the collector looks for trees in use.
func TestTheTreeOfADebugAppIsInUse(t *testing.T) {
	data := t.TempDir()
	s, err := OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	for dir, is := range map[string]bool{"pods/run/u/debug/d": true, "pods/run/u/appsinfo/a": false, "pods/embryo/u/debug/d": false, "local/u/apps/a": true, "pods/run/u/debug": false} {
		if s.ofApp(filepath.Join(data, dir)) != is {
			t.Errorf("%s: %v", dir, !is)
		}
	}
	for _, state := range []string{"run", "exited-garbage"} { // a collector moves a pod whose shim died
		dir := filepath.Join(data, "pods", state, "u", "debug", "d")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, IDFile), []byte("sha256-"+state+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	used, err := s.used()
	if err != nil || used["sha256-run"] == "" || used["sha256-exited-garbage"] == "" {
		t.Errorf("%v, %v", used, err)
	}
}

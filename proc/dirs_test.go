package proc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Programs in a pod can write to rkt/, so a directory there may have become a link when the pod
// is attached again.
func TestMakeDirsFollowsNoLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	for range 2 { // the second time all exist
		if err := MakeDirs(dir, "a/b/c", "a/b/d", "e"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a/b/c", "a/b/d", "e"} {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", name, err)
		}
	}
	for link, to := range map[string]string{"a/out": elsewhere, "a/in": "b"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{link, link + "/x"} {
			if err := MakeDirs(dir, name); err == nil {
				t.Errorf("%s was made through a link", name)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MakeDirs(dir, "file"); err == nil {
		t.Error("a file is taken for a directory")
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("%v was made elsewhere (%v)", left, err)
	}
	if err := MakeDirs(filepath.Join(dir, "none"), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("below a directory that does not exist: %v", err)
	}
}

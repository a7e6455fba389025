package image

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// modesOf returns the modes of the files of a tree.
func modesOf(t *testing.T, i *Image) map[string]fs.FileMode {
	t.Helper()
	modes := map[string]fs.FileMode{}
	err := walkImage(i.dir, func(rel string, st fs.FileInfo) error {
		modes[rel] = st.Mode()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return modes
}

func TestTheUmaskChangesNeitherModesNorDigests(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Dir(t, nil)
	for name, mode := range map[string]fs.FileMode{"rootfs/run": 0o711, "rootfs/rkt": 0o777 | fs.ModeSticky, "rootfs/opt": 0o700} {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs/opt/stage2"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "rootfs/rkt"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	// Without entries for directories.
	entries := append(imageEntries(t), file("rootfs/opt/stage2/a/b/c", "text"), file("rootfs/rkt/d/e", "text"))
	o := newOCI(t)
	layers := o.image(tarOf(t, entries...))
	aci := writeACI(t, tarOf(t, entries...))
	for name, make := range map[string]func(s *Store) (*Image, error){
		"directory": func(s *Store) (*Image, error) { return s.Image(t.Context(), dir, "") },
		"ACI":       func(s *Store) (*Image, error) { return s.Image(t.Context(), aci, "") },
		"OCI image": func(s *Store) (*Image, error) { return s.Import(t.Context(), o, layers, "test") },
	} {
		t.Run(name, func(t *testing.T) {
			var want *Image
			for _, umask := range []int{0o022, 0, 0o077} {
				s := openStore(t)
				old := syscall.Umask(umask)
				i, err := make(s)
				syscall.Umask(old)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = i
					continue
				}
				if i.Digest() != want.Digest() {
					t.Errorf("umask %03o: another digest", umask)
				}
				if a, b := modesOf(t, want), modesOf(t, i); !maps.Equal(a, b) {
					t.Errorf("umask %03o: %s", umask, differences(a, b))
				}
			}
			if m := modesOf(t, want)["rootfs/run"]; name == "directory" && m != 0o711 {
				t.Errorf("a program has mode %v", m)
			}
		})
	}
}

func differences(a, b map[string]fs.FileMode) string {
	var all []string
	for name := range a {
		if a[name] != b[name] {
			all = append(all, fmt.Sprintf("%s is %v and %v", name, a[name], b[name]))
		}
	}
	return strings.Join(all, ", ")
}

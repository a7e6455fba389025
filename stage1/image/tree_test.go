package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// damages are ways in which a tree may have been changed.
func damages() map[string]func(tree string) error {
	run := func(tree string) string { return filepath.Join(tree, "rootfs/run") }
	return map[string]func(string) error{
		"a bit is another": func(tree string) error {
			f, err := os.OpenFile(run(tree), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			b := make([]byte, 1)
			_, err = f.ReadAt(b, 20)
			b[0] ^= 4
			_, errWrite := f.WriteAt(b, 20)
			return errors.Join(err, errWrite, f.Close())
		},
		"a file has gone":     func(tree string) error { return os.Remove(run(tree)) },
		"the root has gone":   func(tree string) error { return os.RemoveAll(filepath.Join(tree, "rootfs")) },
		"a file is there too": func(tree string) error { return os.WriteFile(filepath.Join(tree, "rootfs/x"), nil, 0o644) },
		"a mode is another":   func(tree string) error { return os.Chmod(run(tree), 0o755|os.ModeSetuid) },
		"an owner is another": func(tree string) error { return os.Chown(run(tree), 1000, 0) },
		"a fifo is there":     func(tree string) error { return mkfifo(filepath.Join(tree, "rootfs/fifo")) },
		"the sum has gone":    func(tree string) error { return os.Remove(filepath.Join(tree, sumFile)) },
		"the sum is damaged":  func(tree string) error { return os.WriteFile(filepath.Join(tree, sumFile), []byte("{"), 0o644) },
	}
}

func TestADamagedTreeIsFoundAndRenderedAnew(t *testing.T) {
	source := aged(t)
	for name, damage := range damages() {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			first, err := s.Image(t.Context(), source, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(first.dir); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "the sum") { // sum is only checked when the tree is read
				if err := os.RemoveAll(filepath.Join(s.dir, checkedDir)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Rendered(first.Digest()); !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), "import it again") {
				t.Errorf("by its digest: %v", err)
			}
			again, err := s.Image(t.Context(), source, first.Digest())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := treeDigest(source); err != nil || got != again.Digest() {
				t.Fatal(err)
			}
			if _, err := s.Rendered(first.Digest()); err != nil {
				t.Errorf("after it was rendered anew: %v", err)
			}
			if aside, _ := filepath.Glob(filepath.Join(s.dir, damagedPrefix+"*", first.Digest())); len(aside) != 1 {
				t.Errorf("what pods may have is not kept: %v", aside)
			}
		})
	}
}

// A flipped bit on the disk does not change the times of a file. It is found at the first
// use in the next boot.
func TestAFlippedBitIsFoundInTheNextBoot(t *testing.T) {
	source := aged(t)
	s := openStore(t)
	i, err := s.Image(t.Context(), source, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := damages()["a bit is another"](i.dir); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(s.dir, checkedDir, i.Digest()+".json")
	print, _, err := fingerprint(i.dir)
	if err != nil {
		t.Fatal(err)
	}
	write := func(boot string) {
		text := fmt.Sprintf(`{"version":1,"bootID":%q,"fingerprint":%q}`, boot, print)
		if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(thisBoot(t))
	if err := s.intact(i.Digest()); err != nil {
		t.Fatalf("it looks the same, in the same boot: %v", err)
	}
	write("00000000-0000-0000-0000-000000000000")
	if err := s.intact(i.Digest()); !errors.Is(err, errDamaged) {
		t.Errorf("in another boot: %v", err)
	}
}

func thisBoot(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestATreeIsReadOnceInABoot(t *testing.T) {
	s := openStore(t)
	i, err := s.Image(t.Context(), aged(t), "")
	if err != nil {
		t.Fatal(err)
	}
	// If the tree were read again, its missing sum would be an error.
	if err := os.Remove(filepath.Join(i.dir, sumFile)); err != nil {
		t.Fatal(err)
	}
	if err := s.intact(i.Digest()); err != nil {
		t.Error(err)
	}
}

// An image that is imported again replaces a tree that was changed.
func TestAnImportRepairsATree(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	i, err := s.ImportPath(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := damages()["a bit is another"](i.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ImportPath(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rendered(i.Digest()); err != nil {
		t.Error(err)
	}
}

// Whenever a renderer is killed, the store has a whole tree or none, and the next renderer
// succeeds.
func TestARendererCanBeKilledAtAnyMoment(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Dir(t, nil)
	for n := range 8 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rootfs/f%02d", n)), make([]byte, 128<<10), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := treeDigest(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t)
	began := time.Now()
	if out, err := renderIn(s, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	whole := time.Since(began)
	const moments = 6
	for n := range moments {
		s := openStore(t)
		cmd := renderIn(s, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(whole * time.Duration(n) / moments)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if err := s.intact(want); err != nil && !errors.Is(err, errGone) {
			t.Errorf("killed at %d of %d: %v", n, moments, err)
		}
		i, err := s.Image(t.Context(), dir, want)
		if err != nil {
			t.Fatalf("killed at %d of %d: %v", n, moments, err)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*")); len(left) > 0 {
			if _, err := s.Collect(t.Context(), nil, false); err != nil {
				t.Error(err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*")); len(left) > 0 {
			t.Errorf("killed at %d of %d: left %v", n, moments, left)
		}
	}
}

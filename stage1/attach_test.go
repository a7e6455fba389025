package stage1

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
	"golang.org/x/sys/unix"
)

func TestAttachedTreeIsReadOnlyAndItsTwoDirectoriesAreThePods(t *testing.T) {
	p := newFakePod(t, nil)
	rootfs := filepath.Join(p.dir, RootfsDir)
	if err := os.WriteFile(filepath.Join(rootfs, "run"), nil, 0o755); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to an entrypoint: %v", err)
	}
	if err := os.WriteFile(filepath.Join(rootfs, "new"), nil, 0o755); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to the tree: %v", err)
	}
	for _, d := range []string{"rkt", "rkt/status", "opt/stage2"} {
		if err := os.WriteFile(filepath.Join(rootfs, d, "f"), []byte("x"), 0o644); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(p.Rootfs(), d, "f")); err == nil {
			t.Errorf("%s was written to in the tree store", d)
		}
	}
	manifest, err := os.ReadFile(filepath.Join(p.dir, "stage1/manifest"))
	if err != nil || string(manifest) != string(p.Manifest()) {
		t.Errorf("manifest: %v", err)
	}
	id, err := os.ReadFile(filepath.Join(p.dir, image.IDFile))
	if err != nil || strings.TrimSpace(string(id)) != p.Digest() {
		t.Errorf("tree id %q, %v", id, err)
	}
}

func TestAnImageWithoutStage2HasTwoMounts(t *testing.T) {
	for without, mounts := range map[string]int{"": 3, "opt/stage2": 2} {
		p := newPodOf(t, stage1test.Image{Annotations: map[string]string{abi.AnnotationWithout: without}})
		if m := mountsBelow(t, p.dir); len(m) != mounts {
			t.Errorf("without %q: %v", without, m)
		}
		err := os.WriteFile(filepath.Join(p.dir, Stage2Dir, "f"), nil, 0o644)
		if without == "" && err != nil || without != "" && !errors.Is(err, unix.EROFS) {
			t.Errorf("without %q: writing to opt/stage2: %v", without, err)
		}
		if err := os.WriteFile(filepath.Join(p.dir, RktDir, "f"), nil, 0o644); err != nil {
			t.Errorf("without %q: writing to rkt: %v", without, err)
		}
	}
}

func TestExitsCanBeReadAtTheSamePathAttachedOrNot(t *testing.T) {
	p := newFakePod(t, nil)
	if StatusDir(p.dir) != filepath.Join(p.dir, abi.StatusDir) {
		t.Errorf("the status directory is %s", StatusDir(p.dir))
	}
	want := abi.Status{Code: 137, Signal: 9, Time: time.Unix(1732159865, 123456789)}
	if err := abi.WriteStatus(StatusDir(p.dir), "app-1", "", want); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(string) error{func(string) error { return nil }, p.Detach, p.Detach, p.Attach} {
		if err := step(p.dir); err != nil {
			t.Fatal(err)
		}
		if got, err := abi.ReadStatus(StatusDir(p.dir), "app-1", ""); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestDetachIsSilentWhereNothingIsMounted(t *testing.T) {
	p := newFakePod(t, nil)
	if err := p.Attach(p.dir); err != nil { // on top of the first
		t.Fatal(err)
	}
	for _, dir := range []string{p.dir, p.dir, t.TempDir(), "/nonexistent"} {
		if err := p.Detach(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if m := mountsBelow(t, p.dir); len(m) > 0 {
		t.Errorf("mounts: %v", m)
	}
}

func TestDetachDoesNotWaitForThoseWhoUseTheTree(t *testing.T) {
	p := newFakePod(t, nil)
	f, err := os.Open(filepath.Join(p.dir, RootfsDir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.Detach(p.dir); err != nil {
		t.Error(err)
	}
}

func TestAFailedAttachLeavesNoMount(t *testing.T) {
	p := newFakePod(t, nil)
	if err := p.Detach(p.dir); err != nil {
		t.Fatal(err)
	}
	// The mount point of the second directory is missing from the tree.
	if err := os.RemoveAll(filepath.Join(p.Rootfs(), "opt")); err != nil {
		t.Fatal(err)
	}
	err := p.Attach(p.dir)
	if err == nil || !strings.Contains(err.Error(), "opt/stage2") || !strings.Contains(err.Error(), podUUID) {
		t.Errorf("error %v", err)
	}
	if m := mountsBelow(t, p.dir); len(m) > 0 {
		t.Errorf("mounts: %v", m)
	}
}

// Most hosts have a shared /, and what is mounted there reaches every mount
// namespace that is a slave of it.
func TestMountsBelowASharedMountArePrivate(t *testing.T) {
	stage1test.RequireRoot(t)
	i, err := openStore(t).Image(t.Context(), stage1test.Dir(t, nil), "")
	if err != nil {
		t.Fatal(err)
	}
	s, parent := New(i, i.Name(), children), t.TempDir()
	inNamespace(t, func() error {
		if err := unix.Mount("tmpfs", parent, "tmpfs", 0, ""); err != nil {
			return err
		}
		if err := unix.Mount("", parent, "", unix.MS_SHARED, ""); err != nil {
			return err
		}
		dir := filepath.Join(parent, podUUID)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := s.Attach(dir); err != nil {
			return err
		}
		text, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil {
			return err
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, dir+"/") {
				n++
				if strings.Contains(line, "shared:") || strings.Contains(line, "master:") {
					t.Errorf("propagates: %s", line)
				}
			}
		}
		if n != 3 {
			t.Errorf("%d mounts, want 3", n)
		}
		return s.Detach(dir)
	})
}

// inNamespace runs a function on a thread with a mount namespace of its own, which goes with the thread. It is not the
// first thread of the process, whose namespace is that of the process for everybody.
func inNamespace(t *testing.T, f func() error) {
	t.Helper()
	err := proc.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkAttachAndDetach(b *testing.B) {
	p := newFakePod(b, nil)
	for b.Loop() {
		if err := p.Attach(p.dir); err != nil {
			b.Fatal(err)
		}
		if err := p.Detach(p.dir); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAttachMakesNoPodDirectoryThatIsGone(t *testing.T) {
	p := newFakePod(t, nil)
	gone := filepath.Join(filepath.Dir(p.dir), "gone")
	if err := p.Attach(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(gone); err == nil {
		t.Error("it was made")
	}
}

func TestLoadReopensThePodsImageAttachedOrNot(t *testing.T) {
	p := newFakePod(t, nil)
	for range 2 {
		i, err := p.images.Load(p.dir)
		if err != nil || i.Digest() != p.Digest() || i.Name() != "fake" {
			t.Errorf("%v, %v", i, err)
		}
		if err := p.Detach(p.dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(p.dir, image.IDFile), []byte("../../etc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.images.Load(p.dir); !errdefs.IsDataLoss(err) || !strings.Contains(err.Error(), image.IDFile) {
		t.Errorf("a damaged id: %v", err)
	}
	if _, err := p.images.Load(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no pod: %v", err)
	}
}

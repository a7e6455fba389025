package image

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
	"golang.org/x/sys/unix"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

// aged makes an image directory that has not changed for a while, like that of an
// installed image.
func aged(t testing.TB) string {
	t.Helper()
	stage1test.RequireRoot(t)
	dir := stage1test.Dir(t, nil)
	wait.Until(t, "its change times are in the past", func() bool {
		_, changed, err := fingerprint(dir)
		return err == nil && time.Since(changed) > settled
	})
	return dir
}

func TestATreeIsRenderedOnceAndTheDigestRemembered(t *testing.T) {
	dir, s := aged(t), openStore(t)
	first, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	// Make reading the files impossible: they must not be read again.
	sealed := filepath.Join(t.TempDir(), "unused")
	if err := os.Rename(filepath.Join(s.dir, lockFile), sealed); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, lockFile), 0o700); err != nil {
		t.Fatal(err)
	}
	again, err := s.Image(t.Context(), dir, first.Digest())
	if err != nil || again.Digest() != first.Digest() {
		t.Fatalf("%v, %v", again, err)
	}
}

func TestAChangedImageHasAnotherDigestAndTheOldTreeStays(t *testing.T) {
	dir, s := aged(t), openStore(t)
	first, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(dir, "rootfs/run")
	st, err := os.Stat(run)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(run)
	if err != nil {
		t.Fatal(err)
	}
	// Same size and the same modification time.
	if err := os.WriteFile(run, []byte(strings.Replace(string(text), "1000", "2000", 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(run, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	second, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if second.Digest() == first.Digest() {
		t.Error("the change was not seen")
	}
	for i, want := range map[*Image]string{first: "1000", second: "2000"} {
		if b, err := os.ReadFile(filepath.Join(i.dir, "rootfs/run")); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("tree %.20s: %v, without %s", i.Digest(), err, want)
		}
	}
}

func TestCopiesOfAnImageHaveOneDigest(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	if err := os.Symlink("run", filepath.Join(dir, "rootfs/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "rootfs/run"), filepath.Join(dir, "rootfs/twin")); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	// CopyFS copies the hard link as a second file, with other times and another owner.
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(copied, "rootfs/run"), 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, "README"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	one, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Image(t.Context(), copied, "")
	if err != nil {
		t.Fatal(err)
	}
	if one.Digest() != two.Digest() {
		t.Errorf("digests %s and %s", one.Digest(), two.Digest())
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(one.dir, "rootfs/twin"), &st); err != nil || st.Nlink != 2 || st.Uid != 0 {
		t.Errorf("hard link in the tree: %v, %d links, owner %d", err, st.Nlink, st.Uid)
	}
	// A mode that differs counts.
	if err := os.Chmod(filepath.Join(copied, "rootfs/run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if three, err := s.Image(t.Context(), copied, ""); err != nil || three.Digest() == one.Digest() {
		t.Errorf("another mode makes no difference: %v", err)
	}
}

func TestTreesHaveMountPointsAndModes(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Dir(t, nil)
	if err := os.Chmod(filepath.Join(dir, "rootfs/run"), 0o711|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	i, err := openStore(t).Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range mountPoints() {
		if st, err := os.Stat(filepath.Join(i.dir, d)); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", d, err)
		}
	}
	if st, err := os.Stat(filepath.Join(i.dir, "rootfs/run")); err != nil || st.Mode() != 0o711|os.ModeSetuid {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestAWrongDigestIsRefusedAndNothingKept(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	wrong := digestPrefix + strings.Repeat("0123456789abcdef", 8)
	_, err := s.Image(t.Context(), dir, wrong)
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("error %v", err)
	}
	expectEmpty(t, s)
	right, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errText(s.Image(t.Context(), dir, wrong)), right.Digest()) {
		t.Error("the error does not name both digests")
	}
	for _, bad := range []string{"sha256-00", "sha512-00", strings.ToUpper(right.Digest()), right.Digest() + "0", "../" + right.Digest()} {
		if _, err := s.Image(t.Context(), dir, bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("wanted %q: %v", bad, err)
		}
	}
}

func errText(_ any, err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func renderIn(store *Store, source string) *exec.Cmd {
	return exec.Command("/proc/self/exe", "test-render", filepath.Dir(store.dir), source)
}

func TestEightProcessesRenderOneImageAtOnce(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	var wg sync.WaitGroup
	digests := make([]string, 8)
	for n := range digests {
		wg.Go(func() {
			out, err := renderIn(s, dir).CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			digests[n] = strings.TrimSpace(string(out))
		})
	}
	wg.Wait()
	for _, d := range digests {
		if d != digests[0] {
			t.Errorf("digests %s and %s", digests[0], d)
		}
	}
	if _, err := openImage(s.tree(digests[0]), digests[0]); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestARendererThatIsKilledLeavesNothingThatCounts(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	// So many files that rendering takes a while.
	many := filepath.Join(dir, "rootfs/a")
	if err := os.Mkdir(many, 0o755); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 1<<20)
	for n := range 64 {
		if err := os.WriteFile(filepath.Join(many, string(rune('A'+n%26))+string(rune('a'+n/26))), big, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := renderIn(s, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "it has begun", func() (bool, string) {
		started, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*", "rootfs/a/*"))
		return len(started) > 0, ""
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if left, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*")); len(left) == 0 {
		t.Skip("the renderer was done before it could be killed")
	}
	if trees, _ := filepath.Glob(filepath.Join(s.dir, digestPrefix+"*")); len(trees) > 0 {
		t.Fatalf("a half tree is in the store: %v", trees)
	}
	i, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(i.dir, "rootfs/run")); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWaitingForAnotherRendererEndsWithTheContext(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	unlock, err := s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the client went away")
	cancel(reason)
	if _, err := s.Image(ctx, dir, ""); !errors.Is(err, reason) {
		t.Errorf("error %v", err)
	}
	unlock()
	if _, err := s.Image(t.Context(), dir, ""); err != nil {
		t.Error(err)
	}
}

func TestARecordThatIsDamagedCostsARenderingOnly(t *testing.T) {
	dir, s := aged(t), openStore(t)
	first, err := s.Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.record(dir)); err != nil {
		t.Fatal("the digest was not remembered: ", err)
	}
	for _, text := range []string{"", "{", `{"version":1}`, `{"version":9,"path":"x"}`} {
		if err := os.WriteFile(s.record(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if i, err := s.Image(t.Context(), dir, ""); err != nil || i.Digest() != first.Digest() {
			t.Errorf("%q: %v", text, err)
		}
	}
}

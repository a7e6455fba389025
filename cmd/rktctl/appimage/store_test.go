package appimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// appDir makes the directory of an app.
func appDir(t testing.TB, dataDir, app string) string {
	t.Helper()
	dir := filepath.Join(dataDir, "local/6733c088-a507-4694-aabf-edbe4fc5266f/apps", app)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return dir
}

func oneImage(t testing.TB) (layout string) {
	t.Helper()
	b := newBuilder(t)
	return b.layout(b.image(ocispec.ImageConfig{}, nil, tarOf(t, dir("etc").with(0o700, 7), file("etc/a", "of the image").with(0o4755, 7), symlink("l", "/etc"))))
}

func TestAnImageIsUnpackedOnce(t *testing.T) {
	requireRoot(t)
	data, layout := t.TempDir(), oneImage(t)
	var wait sync.WaitGroup
	trees := make([]fs.FileInfo, 4)
	for n := range trees {
		wait.Go(func() {
			i, err := Open(context.Background(), layout, Config{DataDir: data})
			if err != nil {
				t.Error(err)
				return
			}
			trees[n], _ = os.Stat(i.Root())
			_ = i.Close()
		})
	}
	wait.Wait()
	for _, other := range trees {
		if !os.SameFile(trees[0], other) {
			t.Error("several trees were made")
		}
	}
}

func TestAChangedTreeIsUnpackedAgain(t *testing.T) {
	requireRoot(t)
	layout := oneImage(t)
	for name, change := range map[string]func(rootfs string) error{
		"content of the same length and time": func(r string) error {
			st, err := os.Stat(filepath.Join(r, "etc/a"))
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(filepath.Join(r, "etc/a"), []byte("OF the image"), 0o755), os.Chtimes(filepath.Join(r, "etc/a"), st.ModTime(), st.ModTime()))
		},
		"a mode":           func(r string) error { return os.Chmod(filepath.Join(r, "etc/a"), 0o6755) },
		"another file":     func(r string) error { return os.WriteFile(filepath.Join(r, "etc/b"), nil, 0o644) },
		"a removed file":   func(r string) error { return os.Remove(filepath.Join(r, "l")) },
		"no tree":          func(r string) error { return os.RemoveAll(r) },
		"no record":        func(r string) error { return os.Remove(filepath.Join(r, "..", recordFile)) },
		"a damaged record": func(r string) error { return os.Truncate(filepath.Join(r, "..", recordFile), 10) },
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			first, err := openedIn(t, data, layout)
			if err != nil {
				t.Fatal(err)
			}
			old := stat(t, first, ".")
			// While it is open, no new directory gets its inode number.
			open, err := os.Open(first.Root())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = open.Close() }()
			if err := change(first.Root()); err != nil {
				t.Fatal(err)
			}
			second, err := openedIn(t, data, layout)
			if err != nil {
				t.Fatal(err)
			}
			if os.SameFile(old, stat(t, second, ".")) {
				t.Error("the changed tree was used")
			}
			if got := text(t, second, "etc/a"); got != "of the image" || stat(t, second, "etc/a").Mode().Perm() != 0o755 {
				t.Errorf("%q %v", got, stat(t, second, "etc/a").Mode())
			}
			if err := errors.Join(first.Close(), second.Close()); err != nil {
				t.Fatal(err)
			}
			collect(t, data, Collection{Unused: time.Hour})
			if left := names(t, filepath.Join(data, "images")); left != ".lock "+second.tree.id() {
				t.Errorf("left are %s", left)
			}
		})
	}
}

func collect(t testing.TB, data string, c Collection) []Tree {
	t.Helper()
	s, err := OpenStore(data)
	if err != nil {
		t.Fatal(err)
	}
	trees, err := s.Collect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return trees
}

func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestATreeIsCollectedWhenNoAppHasIt(t *testing.T) {
	requireRoot(t)
	data := t.TempDir()
	i, err := openedIn(t, data, oneImage(t))
	if err != nil {
		t.Fatal(err)
	}
	kept := func(what, says string) {
		t.Helper()
		trees := collect(t, data, Collection{})
		if len(trees) != 1 || !strings.Contains(trees[0].Kept, says) {
			t.Errorf("%s: %+v", what, trees)
		}
		if _, err := os.Stat(i.Root()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	kept("an open image", "another process has it open")
	app := appDir(t, data, "a-1")
	r, err := i.Rootfs(app)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	kept("an app", "6733c088-a507-4694-aabf-edbe4fc5266f/apps/a-1 has it")
	if err := r.Remove(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, r.dir); left != "" {
		t.Errorf("the app's directory has %s", left)
	}
	if trees := collect(t, data, Collection{Unused: time.Hour}); len(trees) != 1 || trees[0].Kept == "" {
		t.Errorf("a tree that was used within the hour: %+v", trees)
	}
	if trees := collect(t, data, Collection{Dry: true}); len(trees) != 1 || trees[0].Kept != "" || trees[0].Bytes != 12 {
		t.Errorf("%+v", trees)
	}
	if trees := collect(t, data, Collection{ID: "0000000000"}); len(trees) != 0 {
		t.Errorf("%+v", trees)
	}
	id := strings.TrimPrefix(i.tree.id(), treePrefix)
	if trees := collect(t, data, Collection{ID: "sha256:" + id[:12]}); len(trees) != 1 {
		t.Errorf("%+v", trees)
	}
	if left := names(t, filepath.Join(data, "images")); left != ".lock" {
		t.Errorf("left are %s", left)
	}
}

// A process that is killed while it unpacks leaves a directory that no image is taken from.
func TestAnInterruptedProcessLeavesNoTree(t *testing.T) {
	requireRoot(t)
	data, layout := t.TempDir(), oneImage(t)
	left := filepath.Join(data, "images", tmpPrefix+"1")
	if err := os.MkdirAll(filepath.Join(left, rootfsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	i, err := openedIn(t, data, layout)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, filepath.Join(data, "images")); got != ".lock "+i.tree.id() {
		t.Errorf("left are %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, layout, Config{DataDir: filepath.Join(data, "other")}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// unpackAndDie begins to unpack an image and kills the process in the middle of a file.
func unpackAndDie(dataDir string) {
	s, err := OpenStore(dataDir)
	if err != nil {
		panic(err)
	}
	from := &source{layers: []layer{{"large", func(context.Context) (io.ReadCloser, error) {
		var b bytes.Buffer
		err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1 << 30, Mode: 0o644})
		return io.NopCloser(io.MultiReader(&b, &endless{then: func() { _ = unix.Kill(os.Getpid(), unix.SIGKILL) }})), err
	}}}}
	from.config.RootFS.DiffIDs = []digest.Digest{digest.FromString("large")}
	_, err = s.tree(context.Background(), from, "large")
	panic(err)
}

func TestAKilledProcessLeavesNoTreeAndNoLock(t *testing.T) {
	requireRoot(t)
	data := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "/proc/self/exe", "test-killed", data).CombinedOutput(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("%v: %s", err, out)
	}
	if left := names(t, filepath.Join(data, "images")); !strings.Contains(left, tmpPrefix) {
		t.Fatalf("it was not killed while it unpacked: %s", left)
	}
	if trees := collect(t, data, Collection{Dry: true}); len(trees) != 0 {
		t.Errorf("%+v", trees)
	}
	i, err := openedIn(t, data, oneImage(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, filepath.Join(data, "images")); got != ".lock "+i.tree.id() {
		t.Errorf("left are %s", got)
	}
}

// A list is printed while an image is unpacked, which ends when its caller gives up, also in
// the middle of a large file.
func TestUnpackingEndsWithItsCallerAndDelaysNoList(t *testing.T) {
	requireRoot(t)
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	from := &source{layers: []layer{{"large", func(context.Context) (io.ReadCloser, error) {
		large := &tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1 << 40, Mode: 0o644}
		var b bytes.Buffer
		if err := tar.NewWriter(&b).WriteHeader(large); err != nil {
			return nil, err
		}
		return io.NopCloser(io.MultiReader(&b, &endless{then: func() {
			if trees, err := s.Trees(t.Context()); err != nil || len(trees) != 0 {
				t.Errorf("%v, %v", trees, err)
			}
			cancel()
		}})), nil
	}}}}
	from.config.RootFS.DiffIDs = []digest.Digest{digest.FromString("large")}
	s.limits.bytes = 1 << 41
	if _, err := s.tree(ctx, from, "large"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left := names(t, s.dir); left != lockFile {
		t.Errorf("left are %s", left)
	}
}

// endless has zeros, and calls then once.
type endless struct{ then func() }

func (e *endless) Read(p []byte) (int, error) {
	if e.then != nil {
		e.then()
		e.then = nil
	}
	return len(p), nil
}

func TestOnlyRootOfTheHostReachesTrees(t *testing.T) {
	requireRoot(t)
	data := t.TempDir()
	if _, err := openedIn(t, data, oneImage(t)); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(data, "images")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// mounted mounts a root file system.
func mounted(t testing.TB, r *Rootfs) (target string) {
	t.Helper()
	target = t.TempDir()
	if err := mount.All(mount.FromProto(r.Mounts), target); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mount.UnmountAll(target, 0); err != nil {
			t.Error(err)
		}
	})
	return target
}

func TestAppsHaveRootFileSystemsOfTheirOwn(t *testing.T) {
	requireRoot(t)
	t.Run("on the disk", func(t *testing.T) { haveTheirOwn(t, t.TempDir()) })
	t.Run("on a tmpfs", func(t *testing.T) {
		data := t.TempDir()
		if err := unix.Mount("tmpfs", data, "tmpfs", 0, "mode=0755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(data, unix.MNT_DETACH) })
		haveTheirOwn(t, data)
	})
}

func haveTheirOwn(t *testing.T, data string) {
	t.Helper()
	i, err := openedIn(t, data, oneImage(t))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, app := range []string{"a-1", "b-1"} {
		r, err := i.Rootfs(appDir(t, data, app))
		if err != nil || r.Copied != "" || r.Mounts[0].Type != "overlay" {
			t.Fatalf("%+v, %v", r, err)
		}
		targets = append(targets, mounted(t, r))
	}
	if err := os.WriteFile(filepath.Join(targets[0], "etc/a"), []byte("of the app"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(targets[0], "l")); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{targets[0]: "of the app", targets[1]: "of the image", i.Root(): "of the image"} {
		if text, err := os.ReadFile(filepath.Join(target, "etc/a")); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", target, text, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(targets[1], "l")); err != nil {
		t.Error(err)
	}
	if _, err := i.Rootfs(appDir(t, data, "a-1")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second root file system of the app: %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(targets[0], "etc/a")); err != nil || string(text) != "of the app" {
		t.Errorf("after the second: %q, %v", text, err)
	}
	if _, err := i.Rootfs(t.TempDir()); err == nil {
		t.Error("the collector would not find this directory")
	}
}

// The data directory of a container of Docker's is often on an overlay, on which there can be
// no other.
func TestWithoutAnOverlayTheTreeIsCopied(t *testing.T) {
	requireRoot(t)
	below := t.TempDir()
	var options []string
	for _, d := range []string{"lowerdir", "upperdir", "workdir"} {
		dir := filepath.Join(below, d)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		options = append(options, d+"="+dir)
	}
	onOverlay := t.TempDir()
	if err := unix.Mount("overlay", onOverlay, "overlay", 0, strings.Join(options, ",")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(onOverlay, unix.MNT_DETACH) })
	b := newBuilder(t)
	layout := b.layout(b.image(ocispec.ImageConfig{}, nil, tarOf(t, dir("etc").with(0o700, 7), file("etc/a", "of the image").with(0o4755, 7, "user.note", "hello"),
		hardlink("linked", "etc/a").with(0o4755, 7, "user.note", "hello"), symlink("l", "/etc"), node("null", tar.TypeChar, 1, 3), node("fifo", tar.TypeFifo, 0, 0))))
	for name, data := range map[string]string{"on an overlay": onOverlay, "with a colon": filepath.Join(t.TempDir(), "a:b,c")} {
		t.Run(name, func(t *testing.T) {
			i, err := Open(t.Context(), layout, Config{DataDir: data})
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			dir := appDir(t, data, "a-1")
			r, err := i.Rootfs(dir)
			if err != nil {
				t.Fatal(err)
			}
			if r.Copied == "" || r.Mounts[0].Type != "bind" {
				t.Fatalf("%+v", r)
			}
			target := mounted(t, r)
			st, err := os.Stat(filepath.Join(target, "etc/a"))
			if err != nil || st.Mode() != fs.ModeSetuid|0o755 {
				t.Errorf("%v, %v", st, err)
			}
			if linked, err := os.Stat(filepath.Join(target, "linked")); err != nil || !os.SameFile(linked, st) || st.Sys().(*syscall.Stat_t).Uid != 7 {
				t.Errorf("%v, %v", linked, err)
			}
			value := make([]byte, 10)
			if n, err := unix.Getxattr(filepath.Join(target, "linked"), "user.note", value); err != nil || string(value[:n]) != "hello" {
				t.Errorf("%q, %v", value[:max(n, 0)], err)
			}
			for name, want := range map[string]string{"null": "Dcrw-rw-rw-", "fifo": "prw-rw-rw-", "l": "Lrwxrwxrwx", "etc": "drwx------"} {
				if st, err := os.Lstat(filepath.Join(target, name)); err != nil || st.Mode().String() != want {
					t.Errorf("%s: %v, %v", name, st.Mode(), err)
				}
			}
			if err := os.WriteFile(filepath.Join(target, "etc/a"), []byte("of the app"), 0o755); err != nil {
				t.Fatal(err)
			}
			if got := text(t, i, "etc/a"); got != "of the image" {
				t.Errorf("the tree has %q", got)
			}
		})
	}
}

func TestAPlainRootFileSystemIsUsedWhereItIsAndNotChanged(t *testing.T) {
	requireRoot(t)
	data, root := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chown(root, 12, 13), os.Chmod(root, 0o711)); err != nil {
		t.Fatal(err)
	}
	i, err := openedIn(t, data, root)
	if err != nil || !i.Plain() || i.Root() != root {
		t.Fatalf("%+v, %v", i, err)
	}
	r, err := i.Rootfs(appDir(t, data, "a-1"))
	if err != nil {
		t.Fatal(err)
	}
	app := mounted(t, r)
	if err := os.WriteFile(filepath.Join(app, "made"), []byte("by the app"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := names(t, root); got != "" {
		t.Errorf("the root file system has %s", got)
	}
	st, err := os.Stat(app)
	if sys := st.Sys().(*syscall.Stat_t); err != nil || st.Mode().Perm() != 0o711 || sys.Uid != 12 || sys.Gid != 13 {
		t.Errorf("the app's root directory has mode %v and owner %d:%d, %v", st.Mode(), sys.Uid, sys.Gid, err)
	}
	if got := names(t, filepath.Join(data, "images")); got != "" {
		t.Errorf("the store has %s", got)
	}
}

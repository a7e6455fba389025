package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
	"github.com/ulikunitz/xz"
)

// entry is an entry of a tar; the zero type is a regular file.
type entry struct {
	tar.Header
	text string
}

func file(name, text string) entry {
	return entry{tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeReg}, text}
}

func link(kind byte, name, target string) entry {
	return entry{tar.Header{Name: name, Mode: 0o777, Typeflag: kind, Linkname: target}, ""}
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.text))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// image returns the entries of a whole image.
func imageEntries(t testing.TB) []entry {
	t.Helper()
	var entries []entry
	dir := stage1test.Dir(t, nil)
	err := walkImage(dir, func(rel string, st fs.FileInfo) error {
		if !st.Mode().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, rel))
		entries = append(entries, file(rel, string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func writeACI(t testing.TB, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.aci")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnACIHasTheDigestOfItsTarHoweverItIsPacked(t *testing.T) {
	stage1test.RequireRoot(t)
	plain := tarOf(t, imageEntries(t)...)
	sum := sha512.New()
	sum.Write(plain)
	want := digestText(sum)
	for name, pack := range map[string]func(io.Writer) (io.WriteCloser, error){
		"plain": func(w io.Writer) (io.WriteCloser, error) { return nopCloser{w}, nil },
		"gzip":  func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"xz":    func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w, err := pack(&b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(plain); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			aci := writeACI(t, b.Bytes())
			i, err := openStore(t).Image(t.Context(), aci, want)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(i.dir, "rootfs/run")); err != nil {
				t.Error(err)
			}
			// A truncated ACI is refused.
			if err := os.Truncate(aci, int64(b.Len()*2/3)); err != nil {
				t.Fatal(err)
			}
			s := openStore(t)
			if _, err := s.Image(t.Context(), aci, ""); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), aci) {
				t.Errorf("cut off: %v", err)
			}
			expectEmpty(t, s)
		})
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestAnACIKeepsOwnersModesAndLinks(t *testing.T) {
	stage1test.RequireRoot(t)
	owned := file("rootfs/owned", "x")
	owned.Uid, owned.Gid, owned.Mode = 7, 8, 0o4750
	dir := entry{Header: tar.Header{Name: "./rootfs/dir/", Mode: 0o711, Typeflag: tar.TypeDir, Uid: 9, Gid: 9}}
	entries := append(imageEntries(t), file("rootfs/dir/inside", ""), dir, owned,
		link(tar.TypeSymlink, "rootfs/absolute", "/etc/passwd"), link(tar.TypeLink, "rootfs/twin", "rootfs/owned"))
	i, err := openStore(t).Image(t.Context(), writeACI(t, tarOf(t, entries...)), "")
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(i.dir, "rootfs")
	for name, want := range map[string]syscall.Stat_t{
		"owned": {Uid: 7, Gid: 8, Mode: syscall.S_IFREG | 0o4750, Nlink: 2},
		"dir":   {Uid: 9, Gid: 9, Mode: syscall.S_IFDIR | 0o711, Nlink: 2},
	} {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(root, name), &st); err != nil {
			t.Fatal(err)
		}
		if st.Uid != want.Uid || st.Gid != want.Gid || st.Mode != want.Mode || st.Nlink != want.Nlink {
			t.Errorf("%s: %d:%d %o, %d links", name, st.Uid, st.Gid, st.Mode, st.Nlink)
		}
	}
	if target, err := os.Readlink(filepath.Join(root, "absolute")); target != "/etc/passwd" {
		t.Errorf("symlink to %q, %v", target, err)
	}
}

// No entry of an ACI is written outside of the rendered tree.
func TestAnACICannotReachOutOfItsTree(t *testing.T) {
	stage1test.RequireRoot(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	device := entry{Header: tar.Header{Name: "rootfs/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}
	for name, evil := range map[string][]entry{
		"a name that climbs":         {file("rootfs/../../outside/x", "")},
		"a name that climbs back":    {file("rootfs/../rootfs/x", "")},
		"an absolute name":           {file(outside+"/x", "")},
		"a name beside rootfs":       {file("etc/x", "")},
		"rootfs as a symlink":        {link(tar.TypeSymlink, "rootfs", outside), file("rootfs/x", "")},
		"through a symlink":          {link(tar.TypeSymlink, "rootfs/out", outside), file("rootfs/out/x", "")},
		"through a relative symlink": {link(tar.TypeSymlink, "rootfs/out", "../../../../../../"+outside), file("rootfs/out/x", "")},
		"a directory on a symlink":   {link(tar.TypeSymlink, "rootfs/out", outside), {Header: tar.Header{Name: "rootfs/out", Typeflag: tar.TypeDir, Mode: 0o777}}},
		"onto a symlink":             {link(tar.TypeSymlink, "rootfs/out", outside+"/x"), file("rootfs/out", "")},
		"a hard link out":            {link(tar.TypeLink, "rootfs/passwd", "../../../../../../../etc/passwd")},
		"an absolute hard link":      {link(tar.TypeLink, "rootfs/passwd", "/etc/passwd")},
		"a device":                   {device},
		"the same file twice":        {file("rootfs/x", ""), file("rootfs/x", "")},
		"a manifest that is a link":  {link(tar.TypeSymlink, "manifest", "/etc/passwd")},
		"a path of many parts":       {file("rootfs/"+strings.Repeat("a/", 300)+"x", "")},
		"a long path":                {file("rootfs/"+strings.Repeat(strings.Repeat("a", 200)+"/", 20)+"x", "")},
		"a pair of links":            {link(tar.TypeSymlink, "rootfs/a", "b"), link(tar.TypeSymlink, "rootfs/b", outside), file("rootfs/a/x", "")},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			aci := writeACI(t, tarOf(t, append(evil, imageEntries(t)...)...))
			_, err := s.Image(t.Context(), aci, "")
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("error %v", err)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("outside: %v, %v", left, err)
			}
			if st, err := os.Stat(outside); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("outside: %v, %v", st, err)
			}
			expectEmpty(t, s)
		})
	}
}

func TestWhatIsNoACIIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"an empty file": "", "text": "hello, world", "a script": "#!/bin/sh\n" + strings.Repeat("x", 2000),
		"broken gzip": "\x1f\x8b\x08broken", "broken xz": "\xfd7zXZ\x00broken",
	} {
		aci := writeACI(t, []byte(text))
		if _, err := openStore(t).Image(t.Context(), aci, ""); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), aci) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := openStore(t).Image(t.Context(), "/nonexistent.aci", ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Of a sparse file the tar has few bytes.
func TestAnArchiveMayNotUnpackToMoreThanAnImage(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"blobs/sha256/a", "blobs/sha256/b"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: 0}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "blobs/sha256/c", Mode: 0o644, Typeflag: tar.TypeReg, Size: maxImage + 1}); err != nil {
		t.Fatal(err)
	}
	if err := extractLayout(t.Context(), writeACI(t, b.Bytes()), t.TempDir()); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "more than") {
		t.Errorf("error %v", err)
	}
}

func FuzzExtract(f *testing.F) {
	f.Add("rootfs/a", byte(tar.TypeReg), "", "rootfs/b", byte(tar.TypeSymlink), "../../x")
	f.Add("rootfs/out", byte(tar.TypeSymlink), "/tmp", "rootfs/out/x", byte(tar.TypeReg), "")
	f.Add("./rootfs//a/../b", byte(tar.TypeDir), "", "manifest", byte(tar.TypeLink), "../manifest")
	f.Fuzz(func(t *testing.T, name1 string, kind1 byte, target1, name2 string, kind2 byte, target2 string) {
		parent := t.TempDir()
		to := filepath.Join(parent, "in", "tree")
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{
			{Name: name1, Typeflag: kind1, Linkname: target1, Mode: 0o755},
			{Name: name2, Typeflag: kind2, Linkname: target2, Mode: 0o755},
		} {
			if w.WriteHeader(&h) != nil {
				return
			}
		}
		_ = w.Close()
		root, err := os.OpenRoot(to)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		left := int64(maxImage)
		_ = extract(t.Context(), tar.NewReader(&b), root, &left, all)
		for _, dir := range []string{parent, filepath.Dir(to)} {
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("%s holds %v, %v", dir, entries, err)
			}
		}
		entries, _ := os.ReadDir(to)
		for _, e := range entries {
			if e.Name() != "manifest" && e.Name() != "rootfs" {
				t.Errorf("%q was unpacked", e.Name())
			}
		}
	})
}

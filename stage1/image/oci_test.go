package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// ociImage builds an OCI image. It implements Blobs.
type ociImage struct {
	t     testing.TB
	blobs map[string][]byte
}

func newOCI(t testing.TB) *ociImage { return &ociImage{t, map[string][]byte{}} }

func (o *ociImage) Open(_ context.Context, d Descriptor) (io.ReadCloser, error) {
	b, ok := o.blobs[d.Digest]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (o *ociImage) add(b []byte) Descriptor {
	sum := sha256.Sum256(b)
	d := Descriptor{Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(b))}
	o.blobs[d.Digest] = b
	return d
}

func (o *ociImage) document(d document) Descriptor {
	o.t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.add(b)
}

// image adds a manifest with layers.
func (o *ociImage) image(layers ...[]byte) Descriptor {
	var d document
	for _, l := range layers {
		d.Layers = append(d.Layers, o.add(l))
	}
	return o.document(d)
}

// files are those of the image as a layout.
func (o *ociImage) files(top ...Descriptor) map[string][]byte {
	o.t.Helper()
	index, err := json.Marshal(document{Manifests: top})
	if err != nil {
		o.t.Fatal(err)
	}
	all := map[string][]byte{layoutMark: []byte(`{"imageLayoutVersion":"1.0.0"}`), layoutIndex: index}
	for digest, b := range o.blobs {
		all["blobs/"+strings.Replace(digest, ":", "/", 1)] = b
	}
	return all
}

func (o *ociImage) layout(top ...Descriptor) string {
	o.t.Helper()
	dir := o.t.TempDir()
	for name, b := range o.files(top...) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			o.t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			o.t.Fatal(err)
		}
	}
	return dir
}

func (o *ociImage) archive(pack func(testing.TB, []byte) []byte, top ...Descriptor) string {
	o.t.Helper()
	var entries []entry
	for name, b := range o.files(top...) {
		entries = append(entries, file("./"+name, string(b)))
	}
	path := filepath.Join(o.t.TempDir(), "image.tar")
	if err := os.WriteFile(path, pack(o.t, tarOf(o.t, entries...)), 0o644); err != nil {
		o.t.Fatal(err)
	}
	return path
}

func asItIs(_ testing.TB, b []byte) []byte { return b }

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEveryFormOfAnImageHasTheDigestOfItsDirectory(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Dir(t, nil)
	want, err := openStore(t).Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	o := newOCI(t)
	whole := append([]entry{file("etc/passwd", "of no interest")}, entriesOf(t, dir)...)
	image := o.image(zipped(t, tarOf(t, whole...)))
	other := image
	other.Platform = &Platform{OS: "plan9", Architecture: "mips"}
	image.Platform = &Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	index := o.document(document{Manifests: []Descriptor{other, image}})
	for name, source := range map[string]string{
		"layout":             o.layout(image),
		"layout of an index": o.layout(index),
		"layout of several":  o.layout(other, image),
		"archive":            o.archive(asItIs, image),
		"zipped archive":     o.archive(zipped, index),
	} {
		s := openStore(t)
		got, err := s.Image(t.Context(), source, want.Digest())
		if err != nil || got.Name() != want.Name() {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := s.Image(t.Context(), source, want.Digest())
		if err != nil || again.Digest() != want.Digest() {
			t.Errorf("%s again: %v", name, err)
		}
		seen, err := ACIs{}.Inspect(t.Context(), source)
		if err != nil || seen.Digest() != want.Digest() {
			t.Errorf("%s, inspected: %v", name, err)
		}
		left, _ := filepath.Glob(filepath.Join(s.dir, tmpPrefix+"*"))
		if len(left) > 0 {
			t.Errorf("%s left %q", name, left)
		}
	}
	s := openStore(t)
	got, err := s.Import(t.Context(), o, index, "example.com/stage1:v1")
	if err != nil || got.Digest() != want.Digest() {
		t.Fatalf("imported: %v", err)
	}
	imports, err := s.Imports()
	if err != nil || len(imports) != 1 || imports[0] != (Imported{Version: 1, Digest: want.Digest(), Name: want.Name(), Ref: "example.com/stage1:v1"}) {
		t.Errorf("%+v, %v", imports, err)
	}
	if i, err := s.Rendered(want.Digest()); err != nil || i.Name() != want.Name() {
		t.Errorf("by its digest: %v", err)
	}
	if _, err := openStore(t).Rendered(want.Digest()); !errdefs.IsNotFound(err) {
		t.Errorf("in another store: %v", err)
	}
	if _, err := s.Rendered("../" + want.Digest()); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no digest: %v", err)
	}
}

// entriesOf returns an image directory as entries of a tar.
func entriesOf(t testing.TB, dir string) []entry {
	t.Helper()
	var entries []entry
	err := walkImage(dir, func(rel string, st fs.FileInfo) error {
		if st.IsDir() {
			entries = append(entries, entry{tar.Header{Name: rel + "/", Mode: int64(st.Mode().Perm()), Typeflag: tar.TypeDir}, ""})
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, rel))
		e := file(rel, string(text))
		e.Mode = int64(st.Mode().Perm())
		entries = append(entries, e)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func directory(name string) entry {
	return entry{tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeDir}, ""}
}

func TestLayersReplaceAndRemoveWhatIsBelowThem(t *testing.T) {
	stage1test.RequireRoot(t)
	base := entriesOf(t, stage1test.Dir(t, nil))
	lower := append(base, directory("rootfs/d"), file("rootfs/d/old", "old"), file("rootfs/d/kept", "old"), file("rootfs/gone", ""),
		directory("rootfs/opaque"), file("rootfs/opaque/old", ""), file("rootfs/was-file", ""), directory("rootfs/was-dir"), file("rootfs/was-dir/x", ""))
	upper := []entry{
		file("./rootfs/d/old", "new"), file("rootfs/.wh.gone", ""), file("rootfs/opaque/new", ""), file("rootfs/opaque/.wh..wh..opq", ""),
		directory("rootfs/was-file"), file("rootfs/was-file/y", ""), file("rootfs/was-dir", "file"), link(tar.TypeLink, "rootfs/hard", "/rootfs/d/old"),
		link(tar.TypeSymlink, "rootfs/soft", "/etc/passwd"),
	}
	o := newOCI(t)
	i, err := openStore(t).Import(t.Context(), o, o.image(tarOf(t, lower...), zipped(t, tarOf(t, upper...))), "test")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"d/old": "new", "d/kept": "old", "hard": "new", "was-dir": "file", "was-file/y": "", "opaque/new": ""} {
		if got, err := os.ReadFile(filepath.Join(i.dir, "rootfs", name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"gone", "opaque/old", ".wh.gone", "opaque/.wh..wh..opq"} {
		if _, err := os.Lstat(filepath.Join(i.dir, "rootfs", name)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if to, err := os.Readlink(filepath.Join(i.dir, "rootfs/soft")); err != nil || to != "/etc/passwd" {
		t.Errorf("the link leads to %s, %v", to, err)
	}
}

func TestOCIImagesThatAreWrongAreRefusedAndNothingIsKept(t *testing.T) {
	stage1test.RequireRoot(t)
	good := tarOf(t, entriesOf(t, stage1test.Dir(t, nil))...)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func(o *ociImage) Descriptor
		want string
	}{
		"a layer that was changed": {func(o *ociImage) Descriptor {
			d := o.image(good)
			for digest, b := range o.blobs {
				if len(b) == len(good) {
					o.blobs[digest] = append(bytes.Clone(b[:len(b)-1]), 1)
				}
			}
			return d
		}, "and has to be"},
		"a manifest that was changed": {func(o *ociImage) Descriptor {
			d := o.image(good)
			o.blobs[d.Digest] = append(bytes.Clone(o.blobs[d.Digest]), ' ')
			return d
		}, "and has to be"},
		"a size that is not": {func(o *ociImage) Descriptor { d := o.image(good); d.Size++; return d }, "and has to be"},
		"a blob that is not there": {func(o *ociImage) Descriptor {
			d := o.image(good)
			for digest := range o.blobs {
				if digest != d.Digest {
					delete(o.blobs, digest)
				}
			}
			return d
		}, "file does not exist"},
		"another platform": {func(o *ociImage) Descriptor {
			d := o.image(good)
			d.Platform = &Platform{OS: "plan9", Architecture: "mips"}
			return o.document(document{Manifests: []Descriptor{d}})
		}, "there is no image for " + runtime.GOOS + "/" + runtime.GOARCH + ", only for plan9/mips"},
		"no layers":           {func(o *ociImage) Descriptor { return o.document(document{}) }, "neither manifests nor layers"},
		"no JSON":             {func(o *ociImage) Descriptor { return o.add([]byte("x")) }, "invalid character"},
		"a digest of no kind": {func(o *ociImage) Descriptor { return Descriptor{Digest: "sha256:../../x"} }, "the digest"},
		"indexes without end": {func(o *ociImage) Descriptor {
			d := o.image(good)
			for range 4 {
				d = o.document(document{Manifests: []Descriptor{d}})
			}
			return d
		}, "lead to no manifest"},
		"an ordinary image":  {func(o *ociImage) Descriptor { return o.image(tarOf(t, file("bin/sh", ""))) }, "its layers have no \"manifest\""},
		"no manifest":        {func(o *ociImage) Descriptor { return o.image(tarOf(t, file("rootfs/run", ""))) }, "its layers have no \"manifest\""},
		"zstd":               {func(o *ociImage) Descriptor { return o.image([]byte{0x28, 0xb5, 0x2f, 0xfd, 0}) }, "packed with zstd"},
		"no tar":             {func(o *ociImage) Descriptor { return o.image(bytes.Repeat([]byte("x"), 1024)) }, "not a tar"},
		"a name that climbs": {func(o *ociImage) Descriptor { return o.image(good, tarOf(t, file("rootfs/../../x", ""))) }, "leads out of the image"},
		"a device": {func(o *ociImage) Descriptor {
			return o.image(good, tarOf(t, entry{tar.Header{Name: "rootfs/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, ""}))
		}, "files, directories and links only"},
		"a link that leads out": {func(o *ociImage) Descriptor {
			return o.image(good, tarOf(t, link(tar.TypeSymlink, "rootfs/l", outside), file("rootfs/l/x", "escaped")))
		}, "rootfs/l/x"},
		"a whiteout through a link that leads out": {func(o *ociImage) Descriptor {
			return o.image(tarOf(t, append(entriesOf(t, stage1test.Dir(t, nil)), link(tar.TypeSymlink, "rootfs/l", filepath.Dir(outside)))...),
				tarOf(t, file("rootfs/l/.wh.outside", "")))
		}, "rootfs/l/.wh.outside"},
	} {
		t.Run(name, func(t *testing.T) {
			o, s := newOCI(t), openStore(t)
			_, err := s.Import(t.Context(), o, c.make(o), "ref")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "import stage1 image ref") {
				t.Errorf("%v, want %s", err, c.want)
			}
			for _, pattern := range []string{digestPrefix + "*", tmpPrefix + "*", importedDir + "/*"} {
				if left, _ := filepath.Glob(filepath.Join(s.dir, pattern)); len(left) > 0 {
					t.Errorf("left %q", left)
				}
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("outside there is %v, %v", entries, err)
			}
		})
	}
}

// A sparse file is small in a tar, and its holes would fill a disk.
func TestSparseFilesCountInTheirFullLength(t *testing.T) {
	stage1test.RequireRoot(t)
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip(err)
	}
	dir := stage1test.Dir(t, nil)
	if err := os.WriteFile(filepath.Join(dir, "rootfs/holes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "rootfs/holes"), maxImage); err != nil {
		t.Skip(err)
	}
	archive := filepath.Join(t.TempDir(), "image.aci")
	out, err := exec.Command("tar", "--sparse", "-C", dir, "-cf", archive, "manifest", "rootfs").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	layer, err := os.ReadFile(archive)
	if err != nil || len(layer) > 1<<20 {
		t.Fatalf("%d bytes, %v", len(layer), err)
	}
	const want = "unpacks to more than"
	if _, err := openStore(t).Image(t.Context(), archive, ""); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an ACI: %v", err)
	}
	o := newOCI(t)
	if _, err := openStore(t).Import(t.Context(), o, o.image(layer), "sparse"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a layer: %v", err)
	}
}

func TestAPathIsImportedInItsForm(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, s := stage1test.Dir(t, nil), openStore(t)
	i, err := s.ImportPath(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	imports, err := s.Imports()
	if err != nil || len(imports) != 1 || imports[0].Digest != i.Digest() || imports[0].Ref != dir {
		t.Errorf("%+v, %v", imports, err)
	}
	if _, err := s.ImportPath(t.Context(), dir+"/no"); err == nil {
		t.Error("an image that does not exist was imported")
	}
}

func FuzzLayers(f *testing.F) {
	f.Add(tarOf(f, file("rootfs/a", "b"), file("rootfs/.wh.a", ""), link(tar.TypeSymlink, "rootfs/l", "/")))
	f.Add(zipped(f, tarOf(f, link(tar.TypeLink, "rootfs/x", "../../etc/passwd"))))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, layer []byte) {
		parent := t.TempDir()
		to := filepath.Join(parent, "to")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		o, budget := newOCI(t), int64(1<<20)
		_ = applyLayer(t.Context(), o, o.add(layer), to, &budget)
		if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
			t.Errorf("beside the image there is %v, %v", entries, err)
		}
		if budget > 1<<20 {
			t.Errorf("the budget has grown to %d", budget)
		}
	})
}

// A blob of a layout may be a fifo, whose open waits for a writer, or a link to a file
// without an end.
func TestABlobThatIsNotAFileIsRefusedAtOnce(t *testing.T) {
	o := newOCI(t)
	d := Descriptor{Digest: "sha256:" + strings.Repeat("0", 64), Size: 10}
	blob := func(dir string) string { return filepath.Join(dir, "blobs", "sha256", strings.Repeat("0", 64)) }
	for name, make := range map[string]func(path string) error{
		"a fifo":               func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link to a device":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"a link to a sysfs":    func(path string) error { return os.Symlink("/sys", path) },
		"a directory":          func(path string) error { return os.Mkdir(path, 0o700) },
		"a file of wrong size": func(path string) error { return os.WriteFile(path, []byte("content"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := o.layout(o.add([]byte("x")))
			if err := make(blob(dir)); err != nil {
				t.Fatal(err)
			}
			b, err := OpenBlob(t.Context(), Layout(dir), d)
			if err == nil {
				err = b.Close()
			}
			if !errdefs.IsInvalidArgument(err) && !errdefs.IsDataLoss(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

// endless is a source of a blob whose content does not end.
type endless struct{}

func (endless) Open(context.Context, Descriptor) (io.ReadCloser, error) {
	return os.Open("/dev/zero")
}

func TestABlobIsReadToItsDeclaredSizeOnly(t *testing.T) {
	b, err := OpenBlob(t.Context(), endless{}, Descriptor{Digest: "sha256:" + strings.Repeat("0", 64), Size: 10})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := io.Copy(io.Discard, b); n > 11 {
		t.Errorf("read %d bytes of a blob of 10", n)
	}
	if err := b.Close(); !errdefs.IsDataLoss(err) {
		t.Errorf("%v", err)
	}
}

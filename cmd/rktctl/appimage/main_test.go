package appimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// TestMain runs the tests, or the process that one of them kills.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "test-killed" {
		unpackAndDie(os.Args[2])
	}
	os.Exit(wait.Run(m))
}

func requireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the owners of files are changed by root only")
	}
}

var epoch = time.Unix(1_700_000_000, 0)

// entry is an entry of a tar: a header, with its content.
type entry struct {
	tar.Header
	content string
}

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: epoch}, content}
}

func dir(name string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: epoch}, ""}
}

func symlink(name, to string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777, ModTime: epoch}, ""}
}

func hardlink(name, to string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to, Mode: 0o777, ModTime: epoch}, ""}
}

func node(name string, kind byte, major, minor int64) entry {
	return entry{tar.Header{Name: name, Typeflag: kind, Devmajor: major, Devminor: minor, Mode: 0o666, ModTime: epoch}, ""}
}

func (e entry) with(mode int64, uid int, xattrs ...string) entry {
	e.Mode, e.Uid, e.Gid = mode, uid, uid
	for i := 0; i < len(xattrs); i += 2 {
		if e.PAXRecords == nil {
			e.PAXRecords = map[string]string{}
		}
		e.PAXRecords["SCHILY.xattr."+xattrs[i]] = xattrs[i+1]
	}
	return e
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
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

func zstandard(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// builder makes the blobs of OCI images.
type builder struct {
	t     testing.TB
	blobs map[string][]byte
}

func newBuilder(t testing.TB) *builder { return &builder{t, map[string][]byte{}} }

func (b *builder) blob(mediaType string, content []byte) image.Descriptor {
	d := image.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content).String(), Size: int64(len(content))}
	b.blobs[d.Digest] = content
	return d
}

func (b *builder) json(mediaType string, v any) image.Descriptor {
	b.t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.blob(mediaType, text)
}

// image makes an image with a configuration and layers, which pack packs.
func (b *builder) image(config ocispec.ImageConfig, pack func(testing.TB, []byte) []byte, layers ...[]byte) image.Descriptor {
	b.t.Helper()
	c := ocispec.Image{Config: config, Platform: ocispec.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}, RootFS: ocispec.RootFS{Type: "layers"}}
	var m document
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.FromBytes(l))
		if pack != nil {
			l = pack(b.t, l)
		}
		m.Layers = append(m.Layers, b.blob(ocispec.MediaTypeImageLayer, l))
	}
	m.Config = b.json(ocispec.MediaTypeImageConfig, c)
	return b.json(ocispec.MediaTypeImageManifest, m)
}

// files returns the files of a layout.
func (b *builder) files(top ...image.Descriptor) map[string][]byte {
	b.t.Helper()
	index, err := json.Marshal(document{Manifests: top})
	if err != nil {
		b.t.Fatal(err)
	}
	all := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": index}
	for d, content := range b.blobs {
		all["blobs/"+strings.Replace(d, ":", "/", 1)] = content
	}
	return all
}

func (b *builder) layout(top ...image.Descriptor) string {
	b.t.Helper()
	dir := b.t.TempDir()
	for name, content := range b.files(top...) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	return dir
}

// archive writes a layout as a tar.
func (b *builder) archive(pack func(testing.TB, []byte) []byte, top ...image.Descriptor) string {
	b.t.Helper()
	var entries []entry
	for name, content := range b.files(top...) {
		entries = append(entries, file(name, string(content)))
	}
	return write(b.t, "image.tar", pack(b.t, tarOf(b.t, entries...)))
}

func plainly(_ testing.TB, b []byte) []byte { return b }

func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// opened opens an image with a data directory of its own.
func opened(t testing.TB, reference string) (*Image, error) {
	t.Helper()
	return openedIn(t, filepath.Join(t.TempDir(), "data"), reference)
}

func openedIn(t testing.TB, dataDir, reference string) (*Image, error) {
	t.Helper()
	i, err := Open(t.Context(), reference, Config{DataDir: dataDir, Address: filepath.Join(t.TempDir(), "none.sock")})
	if err == nil {
		t.Cleanup(func() { _ = i.Close() })
	}
	return i, err
}

// ofLayers opens an image with these layers, the lowest first.
func ofLayers(t testing.TB, layers ...[]entry) (*Image, error) {
	t.Helper()
	b := newBuilder(t)
	var tars [][]byte
	for _, l := range layers {
		tars = append(tars, tarOf(t, l...))
	}
	return opened(t, b.layout(b.image(ocispec.ImageConfig{}, nil, tars...)))
}

func text(t testing.TB, i *Image, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(i.Root(), name))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

package appimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func TestEveryFormOfAnImageHasTheSameTree(t *testing.T) {
	requireRoot(t)
	b := newBuilder(t)
	layers := [][]byte{tarOf(t, dir("etc"), file("etc/a", "below"), file("b", "below")), tarOf(t, file("etc/a", "above"))}
	config := ocispec.ImageConfig{Cmd: []string{"/b"}}
	d := b.image(config, nil, layers...)
	other := d
	other.Platform = &image.Platform{OS: "plan9", Architecture: "mips"}
	d.Platform = &image.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	index := b.json(ocispec.MediaTypeImageIndex, document{Manifests: []image.Descriptor{other, d}})
	var id string
	for name, path := range map[string]string{
		"layout":                   b.layout(d),
		"layout of an index":       b.layout(index),
		"layout of several":        b.layout(other, d),
		"archive":                  b.archive(plainly, d),
		"archive with gzip":        b.archive(gzipped, index),
		"archive with zstd":        b.archive(zstandard, d),
		"docker save":              dockerArchive(t, config, layers...),
		"layers packed with gzip":  b.layout(b.image(config, gzipped, layers...)),
		"layers packed with zstd":  b.layout(b.image(config, zstandard, layers...)),
		"zstd after a magic frame": b.layout(b.image(config, skippable, layers...)),
	} {
		t.Run(name, func(t *testing.T) {
			i, err := opened(t, path)
			if err != nil {
				t.Fatal(err)
			}
			if id == "" {
				id = i.tree.id()
			}
			if got := text(t, i, "etc/a") + text(t, i, "b"); got != "abovebelow" || i.tree.id() != id {
				t.Errorf("tree %s has %q; another form's is %s", i.tree.id(), got, id)
			}
			if got := i.config.Config.Cmd; len(got) != 1 || got[0] != "/b" || i.Digest == "" {
				t.Errorf("%q, %s", got, i.Digest)
			}
		})
	}
}

// containerd takes the same: the variant of the architecture that every machine has, and a
// smaller architecture only if there is no other.
func TestTheImageThatFitsTheMachineBestIsTaken(t *testing.T) {
	requireRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the variants are those of amd64")
	}
	b := newBuilder(t)
	of := func(content, architecture, variant string) image.Descriptor {
		d := b.image(ocispec.ImageConfig{}, nil, tarOf(t, file("a", content)))
		d.Platform = &image.Platform{OS: "linux", Architecture: architecture, Variant: variant}
		return d
	}
	newer, small, arm, exact := of("v3", "amd64", "v3"), of("386", "386", ""), of("arm", "arm64", "v8"), of("amd64", "amd64", "")
	attestation := of("attestation", "unknown", "")
	attestation.Platform.OS = "unknown"
	for want, all := range map[string][]image.Descriptor{
		"amd64": {attestation, newer, small, arm, exact},
		"386":   {arm, newer, small},
	} {
		index := b.json(ocispec.MediaTypeImageIndex, document{Manifests: all})
		for form, path := range map[string]string{"index": b.layout(index), "layout": b.layout(all...)} {
			if i, err := opened(t, path); err != nil || text(t, i, "a") != want {
				t.Errorf("%s: not %s: %v", form, want, err)
			}
		}
	}
	if _, err := opened(t, b.layout(arm, newer)); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "linux/arm64") {
		t.Errorf("%v", err)
	}
}

// skippable packs with zstd and puts a frame before it that readers skip.
func skippable(t testing.TB, b []byte) []byte {
	t.Helper()
	return append([]byte{0x52, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'}, zstandard(t, b)...)
}

// dockerArchive is what docker save wrote before version 25. A layer that two images have is
// a link.
func dockerArchive(t testing.TB, config ocispec.ImageConfig, layers ...[]byte) string {
	t.Helper()
	c := ocispec.Image{Config: config, Platform: ocispec.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}}
	i := dockerImage{RepoTags: []string{"example.com/a:v1"}}
	var entries []entry
	for n, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.FromBytes(l))
		name := fmt.Sprintf("%d/layer.tar", n)
		entries = append(entries, dir(fmt.Sprint(n)), file("real-"+fmt.Sprint(n), string(l)), symlink(name, "../real-"+fmt.Sprint(n)))
		i.Layers = append(i.Layers, name)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	i.Config = digest.FromBytes(text).Encoded() + ".json"
	list, err := json.Marshal([]dockerImage{i})
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "docker.tar", tarOf(t, append(entries, file(i.Config, string(text)), file("manifest.json", string(list)))...))
}

func TestLayersReplaceAndRemoveFilesOfLayersBelow(t *testing.T) {
	requireRoot(t)
	i, err := ofLayers(t,
		[]entry{dir("gone"), file("gone/f", "x"), file("hidden", "x"), dir("opaque"), file("opaque/old", "x"), file("file", "x"), dir("dir"), file("dir/f", "x"), dir("kept"), file("kept/f", "kept")},
		[]entry{file(".wh.gone", ""), file(".wh.hidden", ""), dir("opaque"), file("opaque/new", "new"), file("opaque/.wh..wh..opq", ""), dir("file"), file("file/f", "f"), file("dir", "now a file"), dir("kept").with(0o700, 5)})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"opaque/new": "new", "file/f": "f", "dir": "now a file", "kept/f": "kept"} {
		if got := text(t, i, name); got != want {
			t.Errorf("%s has %q", name, got)
		}
	}
	for _, name := range []string{"gone", "hidden", "opaque/old", "opaque/.wh..wh..opq", ".wh.gone"} {
		if _, err := os.Lstat(filepath.Join(i.Root(), name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	if st := stat(t, i, "kept"); st.Mode().Perm() != 0o700 || st.Sys().(*syscall.Stat_t).Uid != 5 {
		t.Errorf("kept is %v of %d", st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
	}
}

func stat(t testing.TB, i *Image, name string) fs.FileInfo {
	t.Helper()
	st, err := os.Lstat(filepath.Join(i.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestFilesKeepOwnersModesLinksAttributesAndDevices(t *testing.T) {
	requireRoot(t)
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	defer syscall.Umask(syscall.Umask(0o077))
	i, err := ofLayers(t, []entry{
		file("suid", "x").with(0o4755, 0), file("sgid", "x").with(0o2755, 33), dir("sticky").with(0o1777, 0),
		file("cap", "x").with(0o755, 1000, "security.capability", capability, "user.note", "hello"),
		hardlink("linked", "cap").with(0o755, 1000, "security.capability", capability), symlink("link", "suid").with(0o777, 1000),
		node("null", tar.TypeChar, 1, 3), node("disk", tar.TypeBlock, 8, 1), node("fifo", tar.TypeFifo, 0, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"suid": "urwxr-xr-x", "sgid": "grwxr-xr-x", "sticky": "dtrwxrwxrwx", "null": "Dcrw-rw-rw-", "disk": "Drw-rw-rw-", "fifo": "prw-rw-rw-", "link": "Lrwxrwxrwx",
	} {
		if got := stat(t, i, name).Mode().String(); got != want {
			t.Errorf("%s is %s and not %s", name, got, want)
		}
	}
	if s := stat(t, i, "null").Sys().(*syscall.Stat_t); s.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("null is the device %x", s.Rdev)
	}
	if !os.SameFile(stat(t, i, "cap"), stat(t, i, "linked")) {
		t.Error("a hard link has become a copy")
	}
	if s := stat(t, i, "link").Sys().(*syscall.Stat_t); s.Uid != 1000 {
		t.Errorf("the link belongs to %d", s.Uid)
	}
	value := make([]byte, 100)
	n, err := unix.Lgetxattr(filepath.Join(i.Root(), "linked"), "security.capability", value)
	if err != nil || string(value[:n]) != capability {
		t.Errorf("capabilities %x, %v", value[:max(n, 0)], err)
	}
	if st := stat(t, i, "."); st.Mode().Perm() != 0o755 {
		t.Errorf("the root is %v", st.Mode())
	}
}

func TestImagesThatAreWrongAreRefusedAndNothingIsKept(t *testing.T) {
	requireRoot(t)
	good := tarOf(t, file("a", strings.Repeat("x", 4096)))
	change := func(b *builder, d image.Descriptor, content []byte) image.Descriptor {
		b.blobs[d.Digest] = content
		return d
	}
	config := func(b *builder, c ocispec.Image, layers ...[]byte) image.Descriptor {
		m := document{Config: b.json(ocispec.MediaTypeImageConfig, c)}
		for _, l := range layers {
			m.Layers = append(m.Layers, b.blob(ocispec.MediaTypeImageLayer, l))
		}
		return b.json(ocispec.MediaTypeImageManifest, m)
	}
	ids := ocispec.RootFS{DiffIDs: []digest.Digest{digest.FromBytes(good)}}
	for name, c := range map[string]struct {
		make func(b *builder) image.Descriptor
		is   func(error) bool
		says string
	}{
		"a layer with other content": {func(b *builder) image.Descriptor {
			d := b.image(ocispec.ImageConfig{}, nil, good)
			change(b, image.Descriptor{Digest: digest.FromBytes(good).String()}, bytes.Replace(good, []byte("xxx"), []byte("yyy"), 1))
			return d
		}, errdefs.IsDataLoss, "has to be"},
		"a layer that is longer": {func(b *builder) image.Descriptor {
			d := b.image(ocispec.ImageConfig{}, nil, good)
			change(b, image.Descriptor{Digest: digest.FromBytes(good).String()}, append(bytes.Clone(good), 0))
			return d
		}, errdefs.IsDataLoss, "has to be"},
		"a layer of another diff id": {func(b *builder) image.Descriptor {
			return config(b, ocispec.Image{RootFS: ids}, tarOf(t, file("a", "y")))
		}, errdefs.IsDataLoss, "unpacked it has the digest"},
		"a manifest with other content": {func(b *builder) image.Descriptor {
			return change(b, b.image(ocispec.ImageConfig{}, nil, good), []byte(`{}`))
		}, errdefs.IsDataLoss, "has to be"},
		"a configuration with other content": {func(b *builder) image.Descriptor {
			d := b.image(ocispec.ImageConfig{}, nil, good)
			var m document
			if err := json.Unmarshal(b.blobs[d.Digest], &m); err != nil {
				t.Fatal(err)
			}
			change(b, m.Config, bytes.Replace(b.blobs[m.Config.Digest], []byte("linux"), []byte("linuy"), 1))
			return d
		}, errdefs.IsDataLoss, "configuration"},
		"more layers than digests": {func(b *builder) image.Descriptor {
			return config(b, ocispec.Image{RootFS: ids}, good, good)
		}, errdefs.IsInvalidArgument, "2 layers"},
		"another machine": {func(b *builder) image.Descriptor {
			return config(b, ocispec.Image{RootFS: ids, Platform: ocispec.Platform{OS: "plan9", Architecture: "mips"}}, good)
		}, errdefs.IsNotFound, "plan9/mips"},
		"an artifact": {func(b *builder) image.Descriptor {
			return b.json(ocispec.MediaTypeImageManifest, document{Config: b.json("application/vnd.cncf.helm.config.v1+json", 1)})
		}, errdefs.IsInvalidArgument, "helm"},
		"an index in itself": {func(b *builder) image.Descriptor {
			d := b.image(ocispec.ImageConfig{}, nil, good)
			for range 4 {
				d = b.json(ocispec.MediaTypeImageIndex, document{Manifests: []image.Descriptor{d}})
			}
			return d
		}, errdefs.IsInvalidArgument, "lead to no manifest"},
		"an encrypted layer": {func(b *builder) image.Descriptor {
			m := document{Config: b.json(ocispec.MediaTypeImageConfig, ocispec.Image{RootFS: ids}), Layers: []image.Descriptor{b.blob("application/vnd.oci.image.layer.v1.tar+encrypted", good)}}
			return b.json(ocispec.MediaTypeImageManifest, m)
		}, errdefs.IsNotImplemented, "encrypted"},
		"a digest that is a path": {func(b *builder) image.Descriptor {
			return image.Descriptor{Digest: "sha256:../../../../etc/passwd", Size: 10}
		}, errdefs.IsInvalidArgument, "digest"},
		"a huge manifest": {func(b *builder) image.Descriptor {
			return image.Descriptor{Digest: "sha256:" + strings.Repeat("0", 64), Size: 1 << 40}
		}, errdefs.IsInvalidArgument, "may have"},
		"no tar": {func(b *builder) image.Descriptor {
			return b.image(ocispec.ImageConfig{}, nil, []byte(strings.Repeat("no tar", 1000)))
		}, func(err error) bool { return err != nil }, "header"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t)
			data := t.TempDir()
			d := c.make(b)
			for form, path := range map[string]string{"layout": b.layout(d), "archive": b.archive(plainly, d)} {
				_, err := openedIn(t, data, path)
				if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v", form, err)
				}
			}
			left, err := os.ReadDir(filepath.Join(data, "images"))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range left {
				if e.Name() != lockFile {
					t.Errorf("%s is left", e.Name())
				}
			}
		})
	}
}

func TestASmallImageCannotUnpackToAnySize(t *testing.T) {
	requireRoot(t)
	many := make([]entry, 200)
	named := make([]entry, 20)
	for i := range many {
		many[i] = dir(fmt.Sprint(i))
	}
	for i := range named {
		named[i] = dir(fmt.Sprint(i)).with(0o755, 0, "user.x", strings.Repeat("x", 1000))
	}
	for name, layer := range map[string][]byte{
		"one large file":       tarOf(t, file("a", strings.Repeat("\x00", 200<<10))),
		"many small files":     tarOf(t, many...),
		"long attributes":      tarOf(t, named...),
		"a sparse file":        sparse(t),
		"bytes after the tar":  append(tarOf(t, file("a", "x")), make([]byte, 200<<10)...),
		"two layers of half":   tarOf(t, file("a", strings.Repeat("\x00", 60<<10))),
		"no end, but no bytes": bytes.Repeat(gzipped(t, nil), 1000),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t)
			layers := [][]byte{layer, layer}
			s, err := findInLayout(t.Context(), b.layout(b.image(ocispec.ImageConfig{}, gzipped, layers...)), "")
			if err != nil {
				t.Fatal(err)
			}
			err = s.unpack(t.Context(), t.TempDir(), limits{bytes: 100 << 10, files: 100, header: 10 << 10})
			if !errdefs.IsResourceExhausted(err) && name != "no end, but no bytes" {
				t.Errorf("%v", err)
			}
			if err == nil {
				t.Error("it was unpacked")
			}
		})
	}
}

// sparse is a tar with a file of a terabyte, of which it has no byte.
func sparse(t testing.TB) []byte {
	t.Helper()
	e := file("a", "")
	e.PAXRecords = map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a", "GNU.sparse.realsize": "1099511627776"}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	e.Size = 512
	// Go writes no sparse files, so the records are written as those of another vendor.
	for k, v := range e.PAXRecords {
		delete(e.PAXRecords, k)
		e.PAXRecords["XXX"+k[3:]] = v
	}
	if err := w.WriteHeader(&e.Header); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(append([]byte("0\n"), make([]byte, 510)...)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("XXX.sparse"), []byte("GNU.sparse"))
}

// An archive that is packed is unpacked into a file first, which is bounded as well.
func TestASmallArchiveCannotUnpackToAnySize(t *testing.T) {
	requireRoot(t)
	store, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store.limits.bytes = 100 << 10
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	if _, err := w.Write(append(tarOf(t, file("oci-layout", "{}")), make([]byte, 1<<20)...)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := findInFile(t.Context(), write(t, "a.tar.gz", bomb.Bytes()), "", store); !errdefs.IsResourceExhausted(err) {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(store.dir)
	if err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestReferencesThatNameNoImageAreExplained(t *testing.T) {
	requireRoot(t)
	b := newBuilder(t)
	d := b.image(ocispec.ImageConfig{}, nil, tarOf(t, file("a", "x")))
	one, two := d, b.image(ocispec.ImageConfig{}, nil, tarOf(t, file("a", "y")))
	one.Annotations = map[string]string{containerdName: "example.com/a:v1"}
	two.Annotations = map[string]string{ocispec.AnnotationRefName: "v2"}
	both := b.layout(one, two)
	aci := t.TempDir()
	if err := os.Mkdir(filepath.Join(aci, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(aci, "manifest"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for reference, says := range map[string]string{
		"docker://busybox":       "ctr image pull busybox",
		"https://example.com/a":  "nerdctl pull",
		"docker.io/library/a:v1": "none.sock",
		"/nowhere/at/all":        "no such file",
		both:                     "example.com/a:v1",
		both + "@v3":             "there is no image v3",
		aci:                      "unpacked ACI",
		"/dev/null":              "neither a file nor a directory",
		write(t, "a", []byte{}):  "not an archive",
		write(t, "b", tarOf(t, file("some", "x"))): "neither index.json",
	} {
		if _, err := opened(t, reference); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", reference, err)
		}
	}
	for name, want := range map[string]string{"@v2": "y", "@example.com/a:v1": "x", "@" + one.Digest: "x"} {
		i, err := opened(t, both+name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := text(t, i, "a"); got != want {
			t.Errorf("%s is the image with %s", name, got)
		}
	}
}

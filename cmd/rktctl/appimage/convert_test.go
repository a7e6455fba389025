package appimage

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestAnACIBecomesAnOCIImageThatIsAlwaysTheSame(t *testing.T) {
	requireRoot(t)
	file := aciOf(t, "", `"user": "/owned", "group": "staff", "supplementaryGIDs": [9], "workingDirectory": "/work", "environment": [{"name": "A", "value": "1"}],
		"mountPoints": [{"name": "conf", "path": "/conf", "readOnly": true}],
		"isolators": [{"name": "os/linux/oom-score-adj", "value": 100}]`, acUsers...)
	var first, second bytes.Buffer
	c, err := ConvertArchive(t.Context(), file, "", &first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ConvertArchive(t.Context(), file, "", &second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the second is another one: %v", err)
	}
	if want := []string{"isolator os/linux/oom-score-adj 100", "supplementaryGIDs [9]", "readOnly of the mount point /conf"}; c.Name != "example.com/app:1.2" || !slices.Equal(c.Lost, want) {
		t.Errorf("%+v", c)
	}
	layout := filepath.Join(t.TempDir(), "layout")
	inLayout, err := ConvertLayout(t.Context(), file, "example.com/other:v9", layout)
	if err != nil || inLayout.Digest != c.Digest || inLayout.Name != "example.com/other:v9" {
		t.Errorf("%+v, %v", inLayout, err)
	}
	aci, err := opened(t, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{write(t, "image.tar", first.Bytes()) + "@example.com/app:1.2", layout} {
		i, err := opened(t, path)
		if err != nil {
			t.Fatal(err)
		}
		if i.tree.id() != aci.tree.id() || i.Digest != c.Digest {
			t.Errorf("%s: tree %s, and of the ACI %s", path, i.tree.id(), aci.tree.id())
		}
		s, err := i.Spec(t.Context(), SpecConfig{ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		p := s.Process
		if got := strings.Join(p.Args, " ") + " " + strings.Join(p.Env, " ") + " " + p.Cwd; got != "/bin/app -v A=1 /work" || p.User.UID != 33 || p.User.GID != 50 {
			t.Errorf("%s of %+v", got, p.User)
		}
	}
}

func TestAnACIThatCannotBeConvertedLeavesNoLayout(t *testing.T) {
	requireRoot(t)
	layout := filepath.Join(t.TempDir(), "layout")
	if _, err := ConvertLayout(t.Context(), aciOf(t, "", `"user": "/nowhere", "group": "0"`, acUsers...), "", layout); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(layout); err == nil {
		t.Error("there is a layout")
	}
	if err := os.Mkdir(layout, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := ConvertLayout(t.Context(), aciOf(t, "", `"user": "0", "group": "0"`), "", layout); err == nil {
		t.Error("an existing directory was filled")
	}
}

func FuzzACI(f *testing.F) {
	f.Add([]byte(`{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "a", "app": {"exec": ["/x"], "user": "0", "group": "0", "isolators": [{"name": "resource/memory"}]}}`), []byte("rootfs/x"))
	f.Add([]byte(`{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "a", "app": {"exec": ["/x"], "user": "/x", "group": "0", "isolators": [{"name": "resource/cpu", "value": {"limit": "1e99"}}]}}`), []byte("rootfs/../x"))
	f.Fuzz(func(t *testing.T, manifest, name []byte) {
		if bytes.ContainsRune(name, 0) || len(name) == 0 || len(name) > 90 {
			return
		}
		file := write(t, "a.aci", tarOf(t, file("manifest", string(manifest)), file(string(name), "x")))
		var first, second bytes.Buffer
		if _, err := ConvertArchive(t.Context(), file, "", &first); err != nil {
			return
		}
		if _, err := ConvertArchive(t.Context(), file, "", &second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%v", err)
		}
	})
}

// No archive makes the reader panic, wait, or find an image whose digests do not match.
func FuzzArchive(f *testing.F) {
	b := newBuilder(f)
	f.Add(tarOf(f, file("oci-layout", "{}"), file("index.json", `{"manifests":[{"digest":"sha256:x"}]}`)))
	f.Add(tarOf(f, file("manifest.json", `[{"Config":"../x.json","Layers":["a/layer.tar"]}]`), symlink("a/layer.tar", "../../b")))
	layer := tarOf(f, file("a", "x"))
	for _, pack := range []func(testing.TB, []byte) []byte{plainly, gzipped, zstandard} {
		if archive, err := os.ReadFile(b.archive(pack, b.image(ocispec.ImageConfig{}, pack, layer))); err == nil {
			f.Add(archive)
		}
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		store, err := OpenStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		store.limits = limits{bytes: 1 << 20, files: 1000, header: 1 << 20}
		s, err := findInFile(t.Context(), write(t, "a.tar", archive), "", store)
		if err != nil {
			return
		}
		defer s.close()
		_ = s.unpack(t.Context(), t.TempDir(), store.limits)
	})
}

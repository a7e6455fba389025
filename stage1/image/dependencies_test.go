package image

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// dependent describes an ACI: the fields of its manifest, and its files by their
// paths in rootfs. A file whose text begins with "→" is a hard link.
type dependent struct {
	name      string
	labels    map[string]string
	needs     []need
	whitelist []string
	files     map[string]string
	stage1    bool // with the entrypoints of a whole image
}

type need struct {
	name, id string
	labels   map[string]string
	size     int
}

func labelList(labels map[string]string) []map[string]string {
	list := []map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, map[string]string{"name": k, "value": labels[k]})
	}
	return list
}

// write writes the ACI, and returns its path and image id.
func (d dependent) write(t testing.TB, dir, base string) (path, id string) {
	t.Helper()
	m := map[string]any{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": d.name}
	var entries []entry
	if d.stage1 {
		for _, e := range imageEntries(t) {
			if e.Name != "manifest" {
				entries = append(entries, e)
				continue
			}
			if err := json.Unmarshal([]byte(e.text), &m); err != nil {
				t.Fatal(err)
			}
			m["name"] = d.name
		}
	}
	if d.labels != nil {
		m["labels"] = labelList(d.labels)
	}
	var deps []map[string]any
	for _, n := range d.needs {
		dep := map[string]any{"imageName": n.name}
		if n.id != "" {
			dep["imageID"] = n.id
		}
		if n.labels != nil {
			dep["labels"] = labelList(n.labels)
		}
		if n.size != 0 {
			dep["size"] = n.size
		}
		deps = append(deps, dep)
	}
	if deps != nil {
		m["dependencies"] = deps
	}
	if d.whitelist != nil {
		m["pathWhitelist"] = d.whitelist
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	entries = append([]entry{file("manifest", string(text))}, entries...)
	entries = append(entries, entry{Header: tar.Header{Name: "rootfs/", Typeflag: tar.TypeDir, Mode: 0o755}})
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		text := d.files[name]
		switch target, isLink := strings.CutPrefix(text, "→"); {
		case isLink:
			entries = append(entries, link(tar.TypeLink, "rootfs"+name, "rootfs"+target))
		case strings.HasSuffix(name, "/"):
			entries = append(entries, entry{Header: tar.Header{Name: "rootfs" + name, Typeflag: tar.TypeDir, Mode: 0o711}})
		default:
			entries = append(entries, file("rootfs"+name, text))
		}
	}
	plain := tarOf(t, entries...)
	path = filepath.Join(dir, base)
	if err := os.WriteFile(path, plain, 0o644); err != nil {
		t.Fatal(err)
	}
	a := &aci{path: path}
	if err := a.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path, a.id
}

// filesOf returns the files of a tree except those of the fake stage1.
func filesOf(t *testing.T, i *Image) map[string]string {
	t.Helper()
	own := map[string]bool{}
	for _, e := range imageEntries(t) {
		own[strings.TrimPrefix(e.Name, "rootfs")] = true
	}
	root := filepath.Join(i.dir, "rootfs")
	files := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		if name := strings.TrimPrefix(p, root); !own[name] {
			files[name] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The cases follow "Image Manifest Schema" and "Filesystem Setup" of the appc spec.
func TestDependenciesAreRenderedAsAppcSays(t *testing.T) {
	stage1test.RequireRoot(t)
	for name, c := range map[string]struct {
		images []dependent // the first one is rendered
		want   map[string]string
	}{
		"what a dependency has is there, and the image's own goes before it": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}}, files: map[string]string{"/x": "a", "/only-a": "a"}},
				{name: "b", files: map[string]string{"/x": "b", "/only-b": "b"}},
			},
			map[string]string{"/x": "a", "/only-a": "a", "/only-b": "b"},
		},
		"a later dependency goes before an earlier one": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}, {name: "c"}}},
				{name: "b", files: map[string]string{"/x": "b", "/y": "b"}},
				{name: "c", files: map[string]string{"/x": "c"}},
			},
			map[string]string{"/x": "c", "/y": "b"},
		},
		"dependencies have dependencies": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}, {name: "c"}}},
				{name: "b", needs: []need{{name: "d"}}, files: map[string]string{"/x": "b"}},
				{name: "c", needs: []need{{name: "d"}}, files: map[string]string{"/y": "c"}},
				{name: "d", files: map[string]string{"/x": "d", "/y": "d", "/z": "d"}},
			},
			map[string]string{"/x": "d", "/y": "c", "/z": "d"}, // c's d is above b
		},
		"a list of paths leaves out all others, of all images": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}}, whitelist: []string{"/x", "/y"}, files: map[string]string{"/x": "a", "/z": "a"}},
				{name: "b", files: map[string]string{"/y": "b", "/w": "b"}},
			},
			map[string]string{"/x": "a", "/y": "b"},
		},
		"a list of a dependency holds for what is below it": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}}, files: map[string]string{"/z": "a"}},
				{name: "b", needs: []need{{name: "c"}}, whitelist: []string{"/x"}, files: map[string]string{"/y": "b"}},
				{name: "c", files: map[string]string{"/x": "c", "/w": "c"}},
			},
			map[string]string{"/z": "a", "/x": "c"},
		},
		"a list without dependencies": {
			[]dependent{{name: "a", whitelist: []string{"/x"}, files: map[string]string{"/x": "a", "/y": "a"}}},
			map[string]string{"/x": "a"},
		},
		"a file takes the place of a directory, with all in it": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}}, files: map[string]string{"/x": "a"}},
				{name: "b", files: map[string]string{"/x/": "", "/x/y": "b"}},
			},
			map[string]string{"/x": "a"},
		},
		"labels tell images of one name apart": {
			[]dependent{
				{name: "a", needs: []need{{name: "b", labels: map[string]string{"version": "2"}}}},
				{name: "b", labels: map[string]string{"version": "1"}, files: map[string]string{"/x": "1"}},
				{name: "b", labels: map[string]string{"version": "2", "more": "is no matter"}, files: map[string]string{"/x": "2"}},
			},
			map[string]string{"/x": "2"},
		},
		"an image for another machine is not meant": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}}},
				{name: "b", labels: map[string]string{"os": "freebsd", "arch": "i386"}, files: map[string]string{"/x": "other"}},
				{name: "b", labels: map[string]string{"os": "linux", "arch": runtime.GOARCH}, files: map[string]string{"/x": "this"}},
			},
			map[string]string{"/x": "this"},
		},
		"a hard link to a file that another image replaces keeps its content": {
			[]dependent{
				{name: "a", needs: []need{{name: "b"}}, files: map[string]string{"/1": "a"}},
				{name: "b", files: map[string]string{"/1": "b", "/2": "→/1", "/3": "→/1"}},
			},
			map[string]string{"/1": "a", "/2": "b", "/3": "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if len(c.images[0].whitelist) > 0 {
				for _, e := range imageEntries(t) {
					c.images[0].whitelist = append(c.images[0].whitelist, strings.TrimPrefix(e.Name, "rootfs"))
				}
			}
			c.images[0].stage1 = true
			var top string
			for n, d := range c.images {
				path, _ := d.write(t, dir, fmt.Sprintf("%d.aci", n))
				if n == 0 {
					top = path
				}
			}
			s := openStore(t)
			i, err := s.Image(t.Context(), top, "")
			if err != nil {
				t.Fatal(err)
			}
			if got := filesOf(t, i); !maps.Equal(got, c.want) {
				t.Errorf("files %v, want %v", got, c.want)
			}
			looked, err := ACIs{}.Inspect(t.Context(), top)
			if err != nil || looked.Digest() != i.Digest() {
				t.Errorf("without a store: %v, %v", looked, err)
			}
		})
	}
}

func TestDependenciesKeepModesAndTheirDigestIsOfAllImages(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := t.TempDir()
	base := dependent{name: "b", files: map[string]string{"/d/": "", "/d/x": "1"}}
	_, id := base.write(t, dir, "b.aci")
	top, topID := dependent{name: "a", stage1: true, needs: []need{{name: "b"}}}.write(t, dir, "a.aci")
	s := openStore(t)
	first, err := s.Image(t.Context(), top, "")
	if err != nil {
		t.Fatal(err)
	}
	if first.Digest() == topID || first.Digest() == id {
		t.Errorf("the digest is that of one image: %s", first.Digest())
	}
	if st, err := os.Stat(filepath.Join(first.dir, "rootfs/d")); err != nil || st.Mode().Perm() != 0o711 {
		t.Errorf("mode of a directory: %v, %v", st, err)
	}
	// With another dependency of the same name it is another image, although the ACI is the
	// same.
	base.files["/d/x"] = "2"
	base.write(t, dir, "b.aci")
	second, err := s.Image(t.Context(), top, "")
	if err != nil {
		t.Fatal(err)
	}
	if second.Digest() == first.Digest() || filesOf(t, second)["/d/x"] != "2" {
		t.Error("the changed dependency was not seen")
	}
	if _, err := s.Image(t.Context(), top, first.Digest()); !errdefs.IsInvalidArgument(err) {
		t.Errorf("pinned to the first: %v", err)
	}
}

// A rendered image is found again without reading its files, until an ACI changes that could
// be part of it.
func TestDependenciesAreRememberedWithTheImage(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, more := t.TempDir(), t.TempDir()
	dependent{name: "b", files: map[string]string{"/x": "1"}}.write(t, more, "b.aci")
	top, _ := dependent{name: "a", stage1: true, needs: []need{{name: "b"}}}.write(t, dir, "a.aci")
	s := openStore(t).With(ACIs{Directories: []string{more}})
	wait.Until(t, "it is remembered", func() bool {
		if _, err := s.Image(t.Context(), top, ""); err != nil {
			t.Fatal(err)
		}
		_, ok := s.remembered(top)
		return ok
	})
	if _, ok := s.With(ACIs{}).remembered(top); ok {
		t.Error("it is remembered for other directories")
	}
	dependent{name: "b", files: map[string]string{"/x": "2"}}.write(t, dir, "nearer.aci")
	i, err := s.Image(t.Context(), top, "")
	if err != nil || filesOf(t, i)["/x"] != "2" {
		t.Errorf("an ACI beside the image goes before: %v", err)
	}
}

func TestDependenciesThatAreWrongAreRefusedByName(t *testing.T) {
	stage1test.RequireRoot(t)
	wrongID := digestPrefix + strings.Repeat("0123456789abcdef", 8)
	for name, c := range map[string]struct {
		images []dependent
		want   []string
	}{
		"missing": {
			[]dependent{{name: "a", needs: []need{{name: "example.com/b", labels: map[string]string{"version": "1"}}}}},
			[]string{"a depends on example.com/b,version=1: no ACI of this name"},
		},
		"missing further down": {
			[]dependent{{name: "a", needs: []need{{name: "b"}}}, {name: "b", needs: []need{{name: "c"}}}},
			[]string{"b depends on c: no ACI of this name"},
		},
		"with another label": {
			[]dependent{
				{name: "a", needs: []need{{name: "b", labels: map[string]string{"version": "1"}}}},
				{name: "b", labels: map[string]string{"version": "2"}},
			},
			[]string{"a depends on b,version=1: no ACI"},
		},
		"with another image id": {
			[]dependent{{name: "a", needs: []need{{name: "b", id: wrongID}}}, {name: "b"}},
			[]string{"a depends on b with the imageID " + wrongID, "1.aci is sha512-"},
		},
		"with another size": {
			[]dependent{{name: "a", needs: []need{{name: "b", size: 77}}}, {name: "b"}},
			[]string{"1.aci has", "should have 77"},
		},
		"two that could be meant": {
			[]dependent{{name: "a", needs: []need{{name: "b"}}}, {name: "b", files: map[string]string{"/x": "1"}}, {name: "b", files: map[string]string{"/x": "2"}}},
			[]string{"1.aci", "2.aci", "are called so"},
		},
		"in a circle": {
			[]dependent{{name: "a", needs: []need{{name: "b"}}}, {name: "b", needs: []need{{name: "c"}}}, {name: "c", needs: []need{{name: "b"}}}},
			[]string{"in a circle: b (", ") → c (", ") → b ("},
		},
		"on itself": {
			[]dependent{{name: "a", needs: []need{{name: "a"}}}},
			[]string{"in a circle: a (", ") → a ("},
		},
		"without an entrypoint in any of them": {
			[]dependent{{name: "a", whitelist: []string{"/x"}, files: map[string]string{"/x": ""}}},
			[]string{"entrypoint"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.images[0].stage1 = true
			for n, d := range slices.Backward(c.images) {
				d.write(t, dir, fmt.Sprintf("%d.aci", n))
			}
			s := openStore(t)
			_, err := s.Image(t.Context(), filepath.Join(dir, "0.aci"), "")
			if err == nil {
				t.Fatal("it was rendered")
			}
			for _, want := range append(c.want, filepath.Join(dir, "0.aci")) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q is without %q", err, want)
				}
			}
			expectEmpty(t, s)
		})
	}
}

func TestADependencyIsFoundByItsImageIDAmongSeveral(t *testing.T) {
	stage1test.RequireRoot(t)
	dir, more := t.TempDir(), t.TempDir()
	dependent{name: "b", files: map[string]string{"/x": "near"}}.write(t, dir, "b.aci")
	path, id := dependent{name: "b", files: map[string]string{"/x": "far"}}.write(t, more, "b.aci")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	top, _ := dependent{name: "a", stage1: true, needs: []need{{name: "b", id: id, size: int(st.Size())}}}.write(t, dir, "a.aci")
	i, err := openStore(t).With(ACIs{Directories: []string{"/nonexistent", more}}).Image(t.Context(), top, "")
	if err != nil || filesOf(t, i)["/x"] != "far" {
		t.Errorf("%v, %v", i, err)
	}
}

// Many images that depend on each other cannot make the tree of dependencies explode.
func TestDependenciesAreBounded(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := t.TempDir()
	top := dependent{name: "n0", stage1: true}
	for n := 10; n > 0; n-- {
		d := dependent{name: fmt.Sprintf("n%d", n)}
		if n < 10 {
			next := need{name: fmt.Sprintf("n%d", n+1)}
			d.needs = []need{next, next}
		}
		d.write(t, dir, d.name+".aci")
	}
	top.needs = []need{{name: "n1"}, {name: "n1"}}
	path, _ := top.write(t, dir, "n0.aci")
	if _, err := openStore(t).Image(t.Context(), path, ""); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "more than 128 images") {
		t.Errorf("error %v", err)
	}
}

// No file of a dependency is written outside of the tree.
func TestADependencyCannotReachOutOfTheTree(t *testing.T) {
	stage1test.RequireRoot(t)
	outside := t.TempDir()
	for name, evil := range map[string]entry{
		"a name that climbs":     file("rootfs/../../x", ""),
		"a name that comes back": file("rootfs/../rootfs/x", ""),
		"a hard link out":        link(tar.TypeLink, "rootfs/x", "../../../../../../etc/passwd"),
		"a device":               {Header: tar.Header{Name: "rootfs/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := file("manifest", `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "b"}`)
			out := link(tar.TypeSymlink, "rootfs/out", outside)
			text := tarOf(t, m, out, file("rootfs/out/x", ""), evil)
			if err := os.WriteFile(filepath.Join(dir, "b.aci"), text, 0o644); err != nil {
				t.Fatal(err)
			}
			top, _ := dependent{name: "a", stage1: true, needs: []need{{name: "b"}}}.write(t, dir, "a.aci")
			s := openStore(t)
			if _, err := s.Image(t.Context(), top, ""); err == nil {
				t.Error("it was rendered")
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("outside: %v, %v", left, err)
			}
			expectEmpty(t, s)
		})
	}
}

// A fifo among the ACIs must not block the process that renders.
func TestWhatIsNoFileIsNoDependency(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo.aci"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text.aci"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Symlink("nowhere", filepath.Join(dir, "dangling.aci")); err != nil {
		t.Fatal(err)
	}
	dependent{name: "b", files: map[string]string{"/x": "b"}}.write(t, dir, "z.aci")
	top, _ := dependent{name: "a", stage1: true, needs: []need{{name: "b"}}}.write(t, dir, "a.aci")
	i, err := openStore(t).Image(t.Context(), top, "")
	if err != nil || filesOf(t, i)["/x"] != "b" {
		t.Errorf("%v, %v", i, err)
	}
}

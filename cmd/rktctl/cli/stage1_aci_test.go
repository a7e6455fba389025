package cli

import (
	"archive/tar"
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/signature/signaturetest"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// node is a node with a keyring, a data directory, and a signed ACI.
type node struct {
	config, keyring, aci string
	key                  *signaturetest.Key
}

func newNode(t *testing.T) node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: trees belong to root")
	}
	bundled(t, "native")
	t.Setenv(testData, filepath.Join(t.TempDir(), "rkt"))
	n := node{keyring: t.TempDir(), key: signaturetest.New(t, "Ann", time.Now().Add(-time.Hour), 0)}
	n.key.Public(t, filepath.Join(n.keyring, "ann"), true)
	n.aci = pack(t, filepath.Join(t.TempDir(), "vm.aci"), stage1test.Dir(t, nil), nil)
	n.key.Sign(t, n.aci)
	n.config = configured(t, "[stage1.vm]", "path = '"+n.aci+"'", "[aci]", "keyring = '"+n.keyring+"'")
	return n
}

// pack makes an ACI of a directory, with more in its manifest.
func pack(t *testing.T, path, dir string, more map[string]any) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, text []byte) {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))})
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var manifest map[string]any
	text, err := os.ReadFile(filepath.Join(dir, "manifest"))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range more {
		manifest[k] = v
	}
	if text, err = json.Marshal(manifest); err != nil {
		t.Fatal(err)
	}
	add("manifest", text)
	files, err := filepath.Glob(filepath.Join(dir, "rootfs/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		add("rootfs/"+filepath.Base(f), text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// asShim opens the image as a shim would on a node with a keyring.
func asShim(t *testing.T, path, digest string) error {
	t.Helper()
	s, err := image.OpenStore(os.Getenv(testData))
	if err != nil {
		t.Fatal(err)
	}
	s = s.With(image.ACIs{Signed: true})
	var i *image.Image
	if path != "" {
		i, err = s.Image(t.Context(), path, digest)
	} else {
		i, err = s.Rendered(digest)
	}
	if err == nil {
		err = i.Close()
	}
	return err
}

func TestASignedACIIsImportedAndThenUsed(t *testing.T) {
	n := newNode(t)
	if err := asShim(t, n.aci, ""); err == nil || !strings.Contains(err.Error(), "run rktctl stage1 import with its path") {
		t.Errorf("a shim before the import: %v", err)
	}
	if got := rktctl(t, n.config, "config", "check"); got.code != exitWrong || !strings.Contains(got.stdout, "stage1.vm.path: ") || !strings.Contains(got.stdout, "run rktctl stage1 import") {
		t.Errorf("a check before the import: %+v", got)
	}
	got := rktctl(t, n.config, "stage1", "import", n.aci)
	if got.code != exitDone || !strings.HasPrefix(got.stdout, "# signed by ") || !strings.Contains(got.stdout, "Ann <Ann@example.com>") {
		t.Fatalf("import: %+v", got)
	}
	_, digest, _ := strings.Cut(got.stdout, `digest = "`)
	digest = strings.TrimSuffix(digest, "\"\n")
	for _, path := range []string{n.aci, ""} {
		if err := asShim(t, path, digest); err != nil {
			t.Errorf("a shim after the import, path %q: %v", path, err)
		}
	}
	if got := rktctl(t, n.config, "config", "check"); got != (answer{}) {
		t.Errorf("a check after the import: %+v", got)
	}
	// Without the key in the keyring, the signature is no longer accepted.
	if err := os.Remove(filepath.Join(n.keyring, "ann")); err != nil {
		t.Fatal(err)
	}
	signaturetest.New(t, "Bob", time.Now().Add(-time.Hour), 0).Public(t, filepath.Join(n.keyring, "bob"), true)
	if got := rktctl(t, n.config, "config", "check"); got.code != exitWrong || !strings.Contains(got.stdout, "made with a key that is not in") {
		t.Errorf("a check without the key: %+v", got)
	}
}

func TestAnACIThatIsNotWellSignedIsNotImported(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, n node)
		want  string
	}{
		"missing":     {func(t *testing.T, n node) { must(t, os.Remove(n.aci+".asc")) }, "vm.aci.asc is not there"},
		"another key": {func(t *testing.T, n node) { signaturetest.New(t, "Bob", time.Now(), 0).Sign(t, n.aci) }, "made with a key that is not in"},
		"changed":     {func(t *testing.T, n node) { pack(t, n.aci, stage1test.Dir(t, stage1test.Scripts{"gc": "exit 0"}), nil) }, "not a good signature"},
		"expired": {func(t *testing.T, n node) {
			key := signaturetest.New(t, "Old", time.Now().Add(-time.Hour), time.Minute)
			key.Sign(t, n.aci)
			key.Public(t, filepath.Join(n.keyring, "old"), true)
		}, "Old <Old@example.com> has expired"},
		"no keyring": {func(t *testing.T, n node) { must(t, os.RemoveAll(n.keyring)) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c.spoil(t, n)
			for _, args := range [][]string{{"stage1", "import", n.aci}, {"config", "check"}} {
				got := rktctl(t, n.config, args...)
				if got.code != exitWrong || !strings.Contains(got.stdout+got.stderr, c.want) {
					t.Errorf("%q: %+v, want %q", args, got, c.want)
				}
			}
			if trees, _ := filepath.Glob(filepath.Join(os.Getenv(testData), "trees/sha512-*")); len(trees) > 0 {
				t.Errorf("it was unpacked: %v", trees)
			}
			if err := asShim(t, n.aci, ""); err == nil {
				t.Error("a shim uses it")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An import before the keyring was configured counts as unsigned. An import without a keyring
// makes a signed image unsigned.
func TestAnUnverifiedImportDoesNotCount(t *testing.T) {
	n := newNode(t)
	plain := configured(t, "[stage1.vm]", "path = '"+n.aci+"'")
	got := rktctl(t, plain, "stage1", "import", n.aci)
	if got.code != exitDone || strings.Contains(got.stdout, "signed") {
		t.Fatalf("%+v", got)
	}
	if err := asShim(t, n.aci, ""); err == nil {
		t.Error("a shim uses an image that was not verified")
	}
	if got := rktctl(t, n.config, "stage1", "import", n.aci); got.code != exitDone {
		t.Fatalf("%+v", got)
	}
	if err := asShim(t, n.aci, ""); err != nil {
		t.Error(err)
	}
}

// The signature of an image covers the dependencies that it names by image ids, and no others.
func TestDependenciesHaveToBeSignedUnlessTheyAreNamedByTheirIDs(t *testing.T) {
	n := newNode(t)
	base := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(base, "rootfs"), 0o755))
	must(t, os.WriteFile(filepath.Join(base, "manifest"), []byte(`{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/base"}`), 0o644))
	must(t, os.WriteFile(filepath.Join(base, "rootfs/x"), []byte("x"), 0o644))
	dir := t.TempDir()
	dependency := pack(t, filepath.Join(dir, "base.aci"), base, nil)
	depend := func(on map[string]any) {
		pack(t, n.aci, stage1test.Dir(t, nil), map[string]any{"dependencies": []any{on}})
		n.key.Sign(t, n.aci)
	}
	file := configured(t, "[stage1.vm]", "path = '"+n.aci+"'", "[aci]", "keyring = '"+n.keyring+"'", "dependencies = ['"+dir+"']")
	depend(map[string]any{"imageName": "example.com/base"})
	if got := rktctl(t, file, "stage1", "import", n.aci); got.code != exitWrong || !strings.Contains(got.stderr, "base.aci.asc is not there") {
		t.Errorf("not signed: %+v", got)
	}
	n.key.Sign(t, dependency)
	if got := rktctl(t, file, "stage1", "import", n.aci); got.code != exitDone {
		t.Errorf("signed: %+v", got)
	}
	must(t, os.Remove(dependency+".asc"))
	depend(map[string]any{"imageName": "example.com/base", "imageID": imageID(t, dependency)})
	if got := rktctl(t, file, "stage1", "import", n.aci); got.code != exitDone {
		t.Errorf("named by its image id: %+v", got)
	}
	if got := rktctl(t, file, "config", "check"); got != (answer{}) {
		t.Errorf("%+v", got)
	}
}

func TestStage1GCRemovesWhatNothingLeadsTo(t *testing.T) {
	n := newNode(t)
	file := configured(t)
	got := rktctl(t, file, "stage1", "import", n.aci)
	_, digest, ok := strings.Cut(got.stdout, `digest = "`)
	digest = strings.TrimSuffix(digest, "\"\n")
	if !ok {
		t.Fatalf("%+v", got)
	}
	if got := rktctl(t, file, "stage1", "gc"); got.code != exitDone || !strings.Contains(got.stdout, "kept: it was imported") || !strings.Contains(got.stdout, digest) {
		t.Errorf("imported: %+v", got)
	}
	must(t, os.Remove(n.aci))
	pinned := configured(t, "[stage1.vm]", "digest = '"+digest+"'")
	if got := rktctl(t, pinned, "stage1", "gc", "--forget", digest); got.code != exitDone || !strings.Contains(got.stdout, "kept: the configuration names it") {
		t.Errorf("in the configuration: %+v", got)
	}
	if got := rktctl(t, file, "stage1", "gc", "--dry-run"); got.code != exitDone || !strings.Contains(got.stdout, "would be removed") {
		t.Errorf("dry: %+v", got)
	}
	got = rktctl(t, file, "stage1", "gc", "--json")
	var trees []image.Tree
	if err := json.Unmarshal([]byte(got.stdout), &trees); err != nil || len(trees) != 1 || trees[0].Digest != digest || trees[0].Kept != "" || trees[0].Bytes == 0 {
		t.Errorf("%v, %+v", err, got)
	}
	if got := rktctl(t, file, "stage1", "gc", "--json"); got.stdout != "[]\n" {
		t.Errorf("there is nothing left: %+v", got)
	}
	if got := rktctl(t, file, "stage1", "gc", "--forget", digest); got.code != exitWrong || !strings.Contains(got.stderr, "was not imported") {
		t.Errorf("forgotten twice: %+v", got)
	}
	if got := rktctl(t, configured(t, "x = 1"), "stage1", "gc"); got.code != exitWrong || !strings.Contains(got.stderr, "unknown key x") {
		t.Errorf("the configuration is wrong: %+v", got)
	}
}

func TestConfigCheckFindsFieldsAndDirectoriesThatAreNot(t *testing.T) {
	bundled(t, "native")
	file := configured(t, "[stage1.native]", "accept = ['/process/rlimit', 'mine']", "[fields]", "mine = ['/linux/secomp']",
		"[aci]", "dependencies = ['/no/such/dir']", "keyring = '"+t.TempDir()+"'")
	got := rktctl(t, file, "config", "check")
	lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	want := []string{
		`:2:11: stage1.native.accept: "/process/rlimit" leads to no field of config.json: /process has no "rlimit"; did you mean "/process/rlimits"?`,
		`:4:9: fields.mine: "/linux/secomp" leads to no field of config.json: /linux has no "secomp"; did you mean "/linux/seccomp"?`,
		":6:1: aci.dependencies: open /no/such/dir",
		":7:1: aci.keyring: there is no key in ",
	}
	if got.code != exitWrong || len(lines) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], file+want[i]) {
			t.Errorf("line %q, want %q", lines[i], want[i])
		}
	}
}

// imageID returns the image id of an ACI that is not packed.
func imageID(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return fmt.Sprintf("sha512-%x", sha512.Sum512(text))
}

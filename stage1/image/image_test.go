package image

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

const runAnnotation = abi.AnnotationPrefix + "run"

func TestBrokenImagesAreRefusedWithTheFileAndWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		image stage1test.Image
		spoil func(dir string) error
		want  []string // in the error
		is    error
	}{
		"no manifest": {
			spoil: func(dir string) error { return os.Remove(filepath.Join(dir, "manifest")) },
			want:  []string{"manifest", "no such file"}, is: os.ErrNotExist,
		},
		"no rootfs": {
			spoil: func(dir string) error { return os.RemoveAll(filepath.Join(dir, "rootfs")) },
			want:  []string{"rootfs", "no such file"}, is: os.ErrNotExist,
		},
		"not JSON":       {spoil: manifestText("{\n  \"acKind\": }"), want: []string{"/manifest:2:13", "JSON"}},
		"a JSON array":   {spoil: manifestText("[]"), want: []string{"/manifest"}},
		"an empty file":  {spoil: manifestText(""), want: []string{"/manifest"}},
		"too large":      {spoil: manifestText(`{"a":"` + strings.Repeat("x", maxManifest) + `"}`), want: []string{"/manifest", "more than"}},
		"another acKind": {spoil: replaceIn("manifest", "ImageManifest", "PodManifest"), want: []string{"/manifest", "acKind", `"ImageManifest"`}},
		"no acVersion":   {spoil: replaceIn("manifest", "0.8.11", ""), want: []string{"/manifest", "acVersion"}},
		"a bad name":     {image: stage1test.Image{Name: "No Name"}, want: []string{"/manifest", "ACIdentifier", "lower case"}},
		"dependencies":   {spoil: replaceIn("manifest", `"annotations"`, `"dependencies": [{"imageName": "a"}], "annotations"`), want: []string{"/manifest", "dependencies"}},
		"a version that is no number": {
			image: annotated(abi.AnnotationVersion, "seven"), want: []string{"/manifest", abi.AnnotationVersion, `"seven"`, "number"},
		},
		"version 0": {
			image: annotated(abi.AnnotationVersion, "0"), want: []string{"/manifest", "version 0", "1 to 7"}, is: errdefs.ErrNotImplemented,
		},
		"a future version": {
			image: annotated(abi.AnnotationVersion, "8"), want: []string{"/manifest", "version 8", "1 to 7"}, is: errdefs.ErrNotImplemented,
		},
		"no run": {
			image: annotated(runAnnotation, ""), want: []string{"/manifest", "no entrypoint run", runAnnotation},
		},
		"an annotation twice": {
			spoil: replaceIn("manifest", `"annotations": [`, `"annotations": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"},`),
			want:  []string{"/manifest", "duplicate annotations", `"a"`},
		},
		"a relative path":    {image: annotated(runAnnotation, "run"), want: []string{"/manifest", runAnnotation, `"run"`, "absolute"}},
		"a climbing path":    {image: annotated(runAnnotation, "/../run"), want: []string{"/manifest", runAnnotation, "clean"}},
		"rootfs as a path":   {image: annotated(runAnnotation, "/"), want: []string{"/manifest", runAnnotation}},
		"a missing file":     {image: annotated(runAnnotation, "/gone"), want: []string{"entrypoint run", "/rootfs/gone", "no such file"}},
		"a file without x":   {spoil: func(dir string) error { return os.Chmod(filepath.Join(dir, "rootfs/run"), 0o644) }, want: []string{"entrypoint run", "/rootfs/run", "chmod +x"}},
		"a directory to run": {spoil: func(dir string) error { return stage1test.Replace(filepath.Join(dir, "rootfs/run"), os.Mkdir) }, want: []string{"entrypoint run", "/rootfs/run", "regular file"}},
		"a symlink that leads out": {
			spoil: func(dir string) error {
				return stage1test.Replace(filepath.Join(dir, "rootfs/run"), func(p string, _ os.FileMode) error { return os.Symlink("/bin/sh", p) })
			},
			want: []string{"entrypoint run", "/rootfs/run", "inside rootfs"},
		},
		"a fifo": {
			spoil: func(dir string) error { return mkfifo(filepath.Join(dir, "rootfs/pipe")) },
			want:  []string{"/rootfs/pipe", "files, directories and links"},
		},
		"rkt as a file": {
			spoil: func(dir string) error { return os.WriteFile(filepath.Join(dir, "rootfs/rkt"), nil, 0o644) },
			want:  []string{"rootfs/rkt", "directory"},
		},
		"a socket elsewhere":        {image: annotated(abi.AnnotationServe, "/run/s"), want: []string{"/manifest", abi.AnnotationServe, "below /rkt"}},
		"a socket among the exits":  {image: annotated(abi.AnnotationServe, "/rkt/status/s"), want: []string{"/manifest", abi.AnnotationServe, "belongs to the ABI"}},
		"features that are missing": {image: annotated(abi.AnnotationFeatures, "/f.json"), want: []string{"/rootfs/f.json", "features"}},
		"features that are no JSON": {image: stage1test.Image{Features: "{\"fields\":\n 7}"}, want: []string{"/rootfs/features.json", ":2:", "features"}},
		"a field that is no pointer": {
			image: stage1test.Image{Features: `{"fields": ["process"]}`}, want: []string{"/rootfs/features.json", `"process"`, "pointer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.image.Dir(t)
			if c.spoil != nil {
				if err := c.spoil(dir); err != nil {
					t.Fatal(err)
				}
			}
			s := openStore(t)
			_, err := s.Image(t.Context(), dir, "")
			if err == nil {
				t.Fatal("the image was accepted")
			}
			for _, w := range append(c.want, dir) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
			is := c.is
			if is == nil {
				is = errdefs.ErrInvalidArgument
			}
			if !errors.Is(err, is) {
				t.Errorf("error %q is not %q", err, is)
			}
			expectEmpty(t, s)
		})
	}
}

// expectEmpty fails if a store holds anything but its own.
func expectEmpty(t *testing.T, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != knownDir && e.Name() != lockFile {
			t.Errorf("%s is left in the store", e.Name())
		}
	}
}

func annotated(name, value string) stage1test.Image {
	return stage1test.Image{Annotations: map[string]string{name: value}}
}

func manifestText(text string) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, "manifest"), []byte(text), 0o644) }
}

func replaceIn(file, old, by string) func(string) error {
	return func(dir string) error {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(strings.Replace(string(text), old, by, 1)), 0o644)
	}
}

func TestAnImageTellsItsNameEntrypointsAndFeatures(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Image{
		Name:     "coreos.com/rkt/stage1-fake",
		Scripts:  stage1test.Scripts{abi.GC: "exit 0"},
		Features: `{"oci": {"ociVersionMax": "1.3.0"}, "fields": ["/process/args"]}`,
	}.Dir(t)
	i, err := openStore(t).Image(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if i.Name() != "fake" || !isDigest(i.Digest()) {
		t.Errorf("name %q, digest %q", i.Name(), i.Digest())
	}
	if !i.Has(abi.Run) || !i.Has(abi.GC) || i.Has(abi.Stop) || i.Has("features") {
		t.Error("Has does not agree with the manifest")
	}
	if f := string(i.OCIFeatures()); f != `{"ociVersionMax": "1.3.0"}` {
		t.Errorf("features %s", f)
	}
	if f, err := Features(dir); err != nil || string(f) != string(i.OCIFeatures()) {
		t.Errorf("of the directory %s, %v", f, err)
	}
}

func TestAManifestThatAppcRefusesIsRefusedWithItsFile(t *testing.T) {
	good := `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a.b/c-1","annotations":[` +
		`{"name":"coreos.com/rkt/stage1/interface-version","value":"7"},{"name":"coreos.com/rkt/stage1/run","value":"/run"},` +
		`{"name":"coreos.com/rkt/stage1/app/add","value":"/a"},{"name":"coreos.com/rkt/stage1/app/start","value":"/b"},{"name":"coreos.com/rkt/stage1/app/rm","value":"/c"}]}`
	m, err := parseManifest([]byte(good), "img/manifest")
	if err != nil || m.name != "a.b/c-1" {
		t.Fatalf("%v, %v", m, err)
	}
	for text, want := range map[string]string{
		strings.Replace(good, "ImageManifest", "PodManifest", 1):                       "ImageManifest",
		strings.Replace(good, `"0.8.11"`, `""`, 1):                                     "SemVer",
		strings.Replace(good, "0.8.11", "1.2", 1):                                      "SemVer",
		strings.Replace(good, "a.b/c-1", "", 1):                                        "ACIdentifier",
		strings.Replace(good, "a.b/c-1", "-a", 1):                                      "ACIdentifier",
		strings.Replace(good, `"7"}`, `"7"},{"name":"A","value":""}`, 1):               "ACIdentifier",
		strings.Replace(good, `"7"}`, `"7"},{"name":"a","value":"1"},{"name":"a"}`, 1): `"a"`,
		strings.Replace(good, `"7"}`, `7}`, 1):                                         "img/manifest:1:",
		good[1:]:                                                                       "img/manifest:1:",
		good + "x":                                                                     "img/manifest:1:",
		"null":                                                                         "ImageManifest",
		"{}":                                                                           "ImageManifest",
		"[]":                                                                           "img/manifest:1:",
		"":                                                                             "img/manifest",
	} {
		_, err := parseManifest([]byte(text), "img/manifest")
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "img/manifest") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\nerror %v, want %q in it", text, err, want)
		}
	}
}

func TestAStage1ThatIsInAPackageOfItsOwnIsNamedWithIt(t *testing.T) {
	for arch, want := range map[string]string{"amd64": "package containerd-shim-rkt-kvm", "arm64": "amd64 only, and this host is arm64"} {
		if from := Elsewhere("kvm", arch); !strings.Contains(from, want) {
			t.Errorf("on %s: %q", arch, from)
		}
	}
	if _, err := locate("kvm", t.TempDir()); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), Elsewhere("kvm", runtime.GOARCH)+", or put its image") {
		t.Errorf("%v", err)
	}
}

func TestLocateNamesThePlacesItLookedAt(t *testing.T) {
	prefix := t.TempDir()
	bin := filepath.Join(prefix, "bin")
	beside, libexec := filepath.Join(bin, "stage1/fly"), filepath.Join(prefix, "libexec/containerd-shim-rkt/stage1/fly")
	if _, err := locate("fly", bin); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), beside) || !strings.Contains(err.Error(), libexec) {
		t.Errorf("error %v", err)
	}
	for _, place := range []string{libexec, beside} { // the second wins
		putManifest(t, place)
		if dir, err := locate("fly", bin); dir != place || err != nil {
			t.Errorf("found %q, %v; want %q", dir, err, place)
		}
	}
	for _, name := range []string{"", ".", "..", "../fly", "a/b"} {
		if dir, err := locate(name, bin); err == nil {
			t.Errorf("the name %q leads to %s", name, dir)
		}
	}
}

func TestAnInstallationThatIsBeingRemovedSaysSo(t *testing.T) {
	prefix := t.TempDir()
	kept := filepath.Join(prefix, "libexec/containerd-shim-rkt/kept")
	if _, err := locate("native", kept, filepath.Join(prefix, "bin")); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "is being removed from the node") {
		t.Errorf("error %v", err)
	}
	other := filepath.Join(prefix, "other/stage1/native") // another installation in PATH
	putManifest(t, other)
	if dir, err := locate("native", kept, filepath.Join(prefix, "other")); dir != other || err != nil {
		t.Errorf("found %q, %v; want %q", dir, err, other)
	}
}

// A client that names the shim by its path may name a copy of the executable.
func TestACopyOfTheShimUsesTheImagesOfTheInstalledOne(t *testing.T) {
	prefix := t.TempDir()
	image := filepath.Join(prefix, "real/stage1/fly")
	putManifest(t, image)
	if err := os.WriteFile(filepath.Join(prefix, "real/containerd-shim-rkt-v1"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(prefix, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../real/containerd-shim-rkt-v1", filepath.Join(prefix, "bin/containerd-shim-rkt-v1")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(prefix, "bin"))
	if dir, err := Locate("fly"); dir != image || err != nil {
		t.Errorf("found %q, %v; want %q", dir, err, image)
	}
	t.Setenv("PATH", prefix)
	if dir, err := Locate("fly"); !errdefs.IsNotFound(err) {
		t.Errorf("found %q, %v without a shim in $PATH", dir, err)
	}
}

func putManifest(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

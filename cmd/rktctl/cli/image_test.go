package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestImagesThatAreNotThereAreExplained(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	t.Setenv(testData, filepath.Join(t.TempDir(), "data"))
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"image spec", exitUsage, "one IMAGE"},
		{"image spec --address " + none + " docker://busybox", exitWrong, "ctr image pull busybox"},
		{"image spec --address " + none + " example.com/a:v1", exitWrong, "containerd at " + none},
		{"image spec --address " + none + " example.com/a:v1", exitWrong, "ctr image pull"},
		{"image spec /nowhere", exitWrong, "/nowhere"},
		{"image rm 0123", exitWrong, "there is no unpacked image 0123"},
		{"image rm sha256:", exitUsage, "no digit"},
		{"image rm sha256:xyz", exitWrong, "xyz"},
		{"image gc --unused-for -1h", exitUsage, "negative"},
		{"image import one", exitUsage, "OUTPUT"},
	} {
		if a := rktctl(t, "", strings.Fields(c.args)...); a.code != c.code || !strings.Contains(a.stderr, c.says) {
			t.Errorf("%s: %+v", c.args, a)
		}
	}
}

// Looking at images makes no data directory.
func TestAnEmptyStoreOfImagesIsNotMade(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	t.Setenv(testData, data)
	for _, verb := range []string{"list", "gc"} {
		if a := rktctl(t, "", "image", verb, "--json"); a.code != exitDone || a.stdout != "[]\n" {
			t.Errorf("%s: %+v", verb, a)
		}
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

func TestAnImportOfAnACISaysWhatIsLost(t *testing.T) {
	dir := t.TempDir()
	aci := filepath.Join(dir, "a.aci")
	manifest := `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/app", "app": {"exec": ["/x"], "user": "0", "group": "0",
		"isolators": [{"name": "os/linux/oom-score-adj", "value": 100}]}}`
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "manifest", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(manifest))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(manifest)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(aci, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	const lost = "rktctl: lost, because an OCI image cannot express it: isolator os/linux/oom-score-adj 100\n"
	for _, to := range []string{"out.tar", "layout/"} {
		a := rktctl(t, "", "image", "import", aci, dir+"/"+to)
		if a.code != exitDone || a.stderr != lost || !strings.HasPrefix(a.stdout, "example.com/app:latest sha256:") {
			t.Errorf("%s: %+v", to, a)
		}
	}
	a := rktctl(t, "", "image", "import", "--name", "example.com/other:v1", aci, "-")
	if a.code != exitDone || a.stderr != lost || !strings.Contains(a.stdout, `"io.containerd.image.name":"example.com/other:v1"`) {
		t.Errorf("%d %s", a.code, a.stderr)
	}
}

func TestAFailedImportOfAnACILeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	aci, out := filepath.Join(dir, "a.aci"), filepath.Join(dir, "out.tar")
	if err := os.WriteFile(aci, []byte("no tar"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{out, out + "/"} {
		if a := rktctl(t, "", "image", "import", aci, to); a.code != exitWrong || !strings.Contains(a.stderr, "not an ACI") {
			t.Errorf("%+v", a)
		}
		if _, err := os.Lstat(out); err == nil {
			t.Errorf("%s is there", out)
		}
	}
	if err := os.WriteFile(out, []byte("of another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a := rktctl(t, "", "image", "import", aci, out); a.code != exitWrong {
		t.Errorf("%+v", a)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "of another" {
		t.Errorf("%q, %v", text, err)
	}
}

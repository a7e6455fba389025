package integration

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// stage1Layer returns a stage1's image directory as the layer of an OCI image.
func stage1Layer(t *testing.T, dir string) []image.File {
	t.Helper()
	var files []image.File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		f := image.File{Name: rel, Mode: int64(st.Mode().Perm())}
		switch {
		case err != nil:
			return err
		case st.IsDir():
			f.Name += "/"
		case st.Mode()&fs.ModeSymlink != 0:
			f.Link, err = os.Readlink(path)
		default:
			f.Content, err = os.ReadFile(path)
		}
		files = append(files, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// rktctl calls the operator's command on a node.
func (n *node) rktctl(args ...string) (stdout string, err error) {
	n.t.Helper()
	cmd := exec.CommandContext(n.context(n.t), filepath.Join(suite.shims, "rktctl"), args...)
	cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(n.daemon.Dir()), "RKT_CONFIG="+n.file)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		n.t.Logf("rktctl %s: %s", strings.Join(args, " "), exit.Stderr)
	}
	return string(out), err
}

// A stage1 comes from a registry's image: containerd has the image, rktctl imports it and
// prints the configuration, and the image may then be removed.
func TestAStage1ComesFromContainerdsStore(t *testing.T) {
	eachNode(t, "import", func(t *testing.T, n *node) {
		const ref = "example.com/stage1-carried:v1"
		layer := stage1Layer(t, filepath.Join(suite.shims, "stage1/native"))
		extra := []image.File{{Name: "rootfs/carried", Mode: 0o644, Content: []byte("by layers")}}
		archive := filepath.Join(t.TempDir(), "stage1.tar")
		if err := image.WriteFile(archive, image.Image{Name: ref, Layers: [][]image.File{layer, extra}}); err != nil {
			t.Fatal(err)
		}
		n.ctr(t, "image", "import", archive).must(t)
		from := []string{"stage1", "import", "--address", n.daemon.Address(), "--namespace", n.daemon.Namespace()}

		if out, err := n.rktctl(append(from, "example.com/absent:v1")...); err == nil || out != "" {
			t.Errorf("an image that is not there: %q, %v", out, err)
		}
		table, err := n.rktctl(append(from, ref)...)
		if err != nil || !strings.HasPrefix(table, "[stage1.native]\ndigest = \"sha512-") {
			t.Fatalf("%q, %v", table, err)
		}
		again, err := n.rktctl("stage1", "import", archive)
		if err != nil || again != table {
			t.Errorf("the archive is %q, %v; the image was %q", again, err, table)
		}
		n.ctr(t, "image", "rm", "--sync", ref).must(t)

		n.says("%spods_may_ask = true\n", strings.Replace(table, "[stage1.native]", "[stage1.carried]", 1))
		if out, err := n.rktctl("config", "check"); err != nil || out != "" {
			t.Errorf("config check: %q, %v", out, err)
		}
		id := n.id()
		record := n.runs(id, stage1Annotation+"=carried")
		_, digest, _ := strings.Cut(table, `digest = "`)
		if digest = digest[:7+128]; !strings.Contains(record, `"name":"carried"`) || !strings.Contains(record, digest) {
			t.Errorf("the record of the pod is %s", record)
		}
		dir, _ := n.pod(t, id)
		if got := read(t, filepath.Join(dir, "stage1/rootfs/carried")); got != "by layers" {
			t.Errorf("the pod's stage1 has %q", got)
		}
		n.exec(t, nil, id, "echo", "hello").must(t).mustSay(t, "hello\n")
		n.ends(id)
	})
}

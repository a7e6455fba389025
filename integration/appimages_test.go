package integration

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/oci"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// appImages calls rktctl with a data directory of its own, and returns its output.
func appImages(t *testing.T, dataDir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(suite.shims, "rktctl"), append([]string{"image"}, args...)...)
	cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("rktctl image %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// The spec of an image is the one that containerd's client makes of the same image, in
// containerd's store, with its names of users read from a snapshot. Only the cgroup's path
// differs, because it has the namespace.
func TestTheSpecOfAnImageIsThatOfContainerd(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		busybox, err := image.Busybox()
		if err != nil {
			t.Fatal(err)
		}
		data := t.TempDir()
		for name, config := range map[string]ocispec.ImageConfig{
			"program":           {Cmd: []string{"/bin/sh"}},
			"entrypoint":        {Entrypoint: []string{"/bin/echo", "a b"}, Cmd: []string{"c", ""}},
			"environment":       {Cmd: []string{"/x"}, Env: []string{"A=1", "A=2", "B", "PATH=/bin"}},
			"directory":         {Cmd: []string{"/x"}, WorkingDir: "/home/alice"},
			"user-name":         {Cmd: []string{"/x"}, User: "alice"},
			"user-number":       {Cmd: []string{"/x"}, User: "1000"},
			"user-unknown":      {Cmd: []string{"/x"}, User: "4711"},
			"user-and-group":    {Cmd: []string{"/x"}, User: "www-data:staff"},
			"numbers":           {Cmd: []string{"/x"}, User: "7:8"},
			"number-and-name":   {Cmd: []string{"/x"}, User: "1000:tty"},
			"volumes":           {Cmd: []string{"/x"}, Volumes: map[string]struct{}{"/data": {}}, ExposedPorts: map[string]struct{}{"80/tcp": {}}},
			"labels-and-signal": {Cmd: []string{"/x"}, Labels: map[string]string{"a": "b"}, StopSignal: "SIGINT"},
		} {
			t.Run(name, func(t *testing.T) {
				ref := "example.com/spec-" + name + ":v1"
				archive := filepath.Join(t.TempDir(), "image.tar")
				if err := image.WriteFile(archive, image.Image{Name: ref, Config: config, Layers: [][]image.File{busybox}}); err != nil {
					t.Fatal(err)
				}
				c.ctr(t, "image", "import", archive).must(t)
				defer c.ctr(t, "image", "rm", ref)
				img, err := c.client.GetImage(c.context(t), ref)
				if err != nil {
					t.Fatal(err)
				}
				id := c.id()
				container, err := c.client.NewContainer(c.context(t), id, containerd.WithNewSnapshot(id, img),
					containerd.WithNewSpec(oci.WithDefaultUnixDevices, oci.WithImageConfig(img), seccomp.WithDefaultProfile()))
				if err != nil {
					t.Fatal(err)
				}
				defer container.Delete(c.context(t), containerd.WithSnapshotCleanup)
				s, err := container.Spec(c.context(t))
				if err != nil {
					t.Fatal(err)
				}
				s.Linux.CgroupsPath = "/rkt/" + id
				want, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				from := []string{"spec", "--id", id, "--address", c.daemon.Address(), "--namespace", c.daemon.Namespace()}
				for _, reference := range []string{ref, img.Target().Digest.String(), img.Target().Digest.String()[:20], archive, archive + "@" + ref} {
					same(t, reference, want, []byte(appImages(t, data, append(from, reference)...)))
				}
			})
		}
	})
}

func TestAnImageThatIsNotThereIsExplained(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		for name, says := range map[string]string{
			"busybox":               "calls one " + image.BusyboxName,
			"busybox:latest":        "calls one " + image.BusyboxName,
			"example.com/absent:v1": "ctr -n " + c.daemon.Namespace() + " image pull example.com/absent:v1",
			"sha256:0123":           "pull it",
		} {
			cmd := exec.CommandContext(t.Context(), filepath.Join(suite.shims, "rktctl"), "image", "spec", "--address", c.daemon.Address(), "--namespace", c.daemon.Namespace(), name)
			cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
	})
}

// containerd may have an image's name without the content of its layers, which its setting
// discard_unpacked_layers removes when a layer is unpacked.
func TestAnImageWithoutItsLayersIsExplained(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		const ref = "example.com/discarded:v1"
		archive := filepath.Join(t.TempDir(), "image.tar")
		only := image.File{Name: "only-here", Mode: 0o644, Content: []byte(c.daemon.Namespace())}
		if err := image.WriteFile(archive, image.Image{Name: ref, Layers: [][]image.File{{only}}}); err != nil {
			t.Fatal(err)
		}
		c.ctr(t, "image", "import", archive).must(t)
		defer c.ctr(t, "image", "rm", ref)
		img, err := c.client.GetImage(c.context(t), ref)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := images.Manifest(c.context(t), c.client.ContentStore(), img.Target(), img.Platform())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.client.ContentStore().Delete(c.context(t), manifest.Layers[0].Digest); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(suite.shims, "rktctl"), "image", "spec", "--address", c.daemon.Address(), "--namespace", c.daemon.Namespace(), ref)
		cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "pull it again") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// same compares JSON documents.
func same(t *testing.T, what string, want, got []byte) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(want, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &b); err != nil {
		t.Fatalf("%s: %v: %s", what, err, got)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s: the spec is\n%s\nand of containerd\n%s", what, got, want)
	}
}

// busyboxACI writes an ACI with busybox.
func busyboxACI(t *testing.T, app string) string {
	t.Helper()
	files, err := image.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/app", "labels": [{"name": "version", "value": "1.2"},
		{"name": "os", "value": "linux"}, {"name": "arch", "value": %q}], "app": %s}`,
		map[string]string{"amd64": "amd64", "arm64": "aarch64"}[runtime.GOARCH], app)
	path := filepath.Join(t.TempDir(), "app.aci")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, file := range append([]image.File{{Name: "../manifest", Mode: 0o644, Content: []byte(manifest)}}, files...) {
		h := &tar.Header{Name: filepath.Join("rootfs", file.Name), Mode: file.Mode, Uid: file.UID, Gid: file.UID, Size: int64(len(file.Content)), Typeflag: tar.TypeReg}
		switch {
		case file.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, file.Link
		case strings.HasSuffix(file.Name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(file.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// An ACI of rkt's time runs under containerd: rktctl makes an OCI image of it, and ctr
// imports and runs this.
func TestAnACIRunsAsAnImageOfContainerds(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		file := busyboxACI(t, `{"exec": ["/bin/sh", "-c", "id -u; id -g; pwd; echo $GREETING"], "user": "alice", "group": "staff",
			"workingDirectory": "/home/alice", "environment": [{"name": "GREETING", "value": "hello"}, {"name": "PATH", "value": "/bin"}]}`)
		archive := appImages(t, t.TempDir(), "import", "--name", "example.com/aci:1.2", file, "-")
		c.ctrWith(t, strings.NewReader(archive), "image", "import", "-").must(t)
		const ref = "example.com/aci:1.2"
		defer c.ctr(t, "image", "rm", ref)
		c.ctr(t, "run", "--rm", "--runtime", c.runtime, ref, c.id()).must(t).mustSay(t, "1000\n50\n/home/alice\nhello\n")
	})
}

// The commands of docs/images.md work as they are printed there. Those that pull from a
// registry of the Internet are left out.
func TestTheCommandsOfThePageOfImages(t *testing.T) {
	page, err := os.ReadFile("../docs/images.md")
	if err != nil {
		t.Skip(err)
	}
	var blocks []string
	for _, b := range strings.Split(string(page), "```sh\n")[1:] {
		if b, _, _ = strings.Cut(b, "```"); !strings.Contains(b, "image pull") {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) == 0 {
		t.Fatal("the page has no commands")
	}
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		aci := busyboxACI(t, `{"exec": ["/bin/sh", "-c", "echo hello"], "user": "0", "group": "0", "environment": [{"name": "PATH", "value": "/bin"}]}`)
		bin := t.TempDir()
		ctr := c.daemon.Ctr(t.Context())
		script := "#!/bin/sh\nexec '" + ctr.Path + "' '" + strings.Join(ctr.Args[1:], "' '") + "' \"$@\"\n"
		if err := os.WriteFile(filepath.Join(bin, "ctr"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(suite.shims, "rktctl"), filepath.Join(bin, "rktctl")); err != nil {
			t.Fatal(err)
		}
		defer c.ctr(t, "image", "rm", "example.com/app:1.2")
		for _, b := range blocks {
			cmd := exec.CommandContext(t.Context(), "sh", "-euc", b)
			cmd.Dir = filepath.Dir(aci)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "RKT_DATA_DIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "hello\n") {
				t.Errorf("%s%v: %s", b, err, out)
			}
		}
	})
}

// What rktctl has unpacked is listed, and removed when nothing has it.
func TestUnpackedImagesAreListedAndRemoved(t *testing.T) {
	busybox, err := image.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	data, archive := t.TempDir(), filepath.Join(t.TempDir(), "image.tar")
	if err := image.WriteFile(archive, image.Image{Name: "example.com/a:v1", Config: ocispec.ImageConfig{Cmd: []string{"/bin/sh"}}, Layers: [][]image.File{busybox}}); err != nil {
		t.Fatal(err)
	}
	if out := appImages(t, data, "list", "--json"); out != "[]\n" {
		t.Errorf("an empty store: %s", out)
	}
	appImages(t, data, "spec", archive)
	var trees []struct{ ID, Name, Kept string }
	if err := json.Unmarshal([]byte(appImages(t, data, "list", "--json")), &trees); err != nil || len(trees) != 1 || trees[0].Name != archive || trees[0].Kept != "" {
		t.Fatalf("%+v, %v", trees, err)
	}
	if out := appImages(t, data, "gc", "--unused-for", "1h"); !strings.Contains(out, "kept: it was used within 1h0m0s") {
		t.Error(out)
	}
	if out := appImages(t, data, "rm", trees[0].ID[:20]); !strings.Contains(out, "removed") {
		t.Error(out)
	}
	if out := appImages(t, data, "list", "--json"); out != "[]\n" {
		t.Errorf("after the removal: %s", out)
	}
}

package local_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// layout writes an OCI layout of an image with a configuration and one layer, which is the root of
// the other tests.
func layout(t *testing.T, config map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	blob := func(content []byte) map[string]any {
		digest := fmt.Sprintf("%x", sha256.Sum256(content))
		path := filepath.Join(dir, "blobs/sha256", digest)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return map[string]any{"digest": "sha256:" + digest, "size": len(content)}
	}
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	typed := func(kind string, d map[string]any) map[string]any {
		d["mediaType"] = "application/vnd.oci.image." + kind
		return d
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := w.AddFS(os.DirFS(suite.rootfs)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l := typed("layer.v1.tar", blob(layer.Bytes()))
	c := typed("config.v1+json", blob(text(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": config, "rootfs": map[string]any{"type": "layers", "diff_ids": []any{l["digest"]}},
	})))
	m := typed("manifest.v1+json", blob(text(map[string]any{"schemaVersion": 2, "config": c, "layers": []any{l}})))
	for name, content := range map[string][]byte{
		"oci-layout": []byte(`{"imageLayoutVersion": "1.0.0"}`),
		"index.json": text(map[string]any{"schemaVersion": 2, "manifests": []any{m}}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The configuration of an image is the app's: program, environment, user, directory and stop
// signal. Its tree is kept as long as an app has it.
func TestAnAppHasTheConfigurationOfItsImage(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		image := layout(t, map[string]any{
			"Entrypoint": []string{"sh", "-c", `trap 'echo quit; exit 3' QUIT; echo "$A $B $(pwd) $0 $1"; while :; do sleep 0.05; done`},
			"Cmd":        []string{"image", "cmd"}, "Env": []string{"PATH=/bin", "A=image", "B=image"},
			"User": "root", "WorkingDir": "/tmp", "StopSignal": "SIGQUIT",
		})
		for name, c := range map[string]local.AppConfig{
			"own":    {Image: image},
			"others": {Image: image, Args: []string{"my", "arguments"}, Env: []string{"B=mine"}, Cwd: "/etc"},
		} {
			c.Name = name
			if err := p.Pod.Add(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			p.start(name)
		}
		p.awaitLog("own", "image image /tmp image cmd\n")
		p.awaitLog("others", "image mine /etc my arguments\n")
		if err := p.Stop(t.Context(), "own", soon()); err != nil {
			t.Fatal(err)
		}
		if st := p.expect("own", local.Exited); *st.ExitCode != 3 {
			t.Errorf("%+v", st)
		}
		store, err := appimage.OpenStore(b.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"own", "others"} {
			trees, err := store.Trees(t.Context())
			if err != nil || len(trees) != 1 || !strings.Contains(trees[0].Kept, "/apps/") {
				t.Errorf("with %s: %+v, %v", name, trees, err)
			}
			if err := p.Pod.Delete(t.Context(), name, 0); err != nil {
				t.Fatal(err)
			}
		}
		if trees, err := store.Trees(t.Context()); err != nil || len(trees) != 1 || trees[0].Kept != "" {
			t.Errorf("without an app: %+v, %v", trees, err)
		}
	})
}

// A registry is refused with the command that pulls the image.
func TestARegistryIsRefused(t *testing.T) {
	p := newBox(t, "native").sandbox()
	c := config("web", "true")
	c.Image = "docker://library/nginx"
	if err := p.Pod.Add(t.Context(), c); err == nil || !strings.Contains(err.Error(), "ctr") {
		t.Errorf("%v", err)
	}
	if all, err := p.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

package pod

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// createOf makes an app of a spec, in which ROOT stands for its root.
func (w *world) createOf(id, spec string, terminal bool) (bundle string, err error) {
	w.t.Helper()
	w.stage1.scripts[id] = "exit 0"
	bundle = filepath.Join(w.t.TempDir(), id)
	root := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(root, 0o711); err != nil {
		w.t.Fatal(err)
	}
	spec = strings.NewReplacer("ROOT", root, "CGROUP", "/"+w.cfg.Key.Namespace+"/"+id).Replace(spec)
	_, err = w.CreateApp(w.t.Context(), AppConfig{
		ID: AppID(id), Bundle: bundle, Rootfs: bareRoot{}, Stdio: &noStdio{}, Spec: readSpec(w.t, spec), Terminal: terminal,
	})
	return bundle, err
}

func TestTheBundleIsReadyForAnOCIRuntime(t *testing.T) {
	for name, c := range map[string]struct {
		spec     string
		terminal bool
		want     string // "": the client's own
	}{
		"the client's own": {spec: `{"ociVersion":"1.1.0","process":{"args":["sh"]},"root":{"path":"rootfs"},"linux":{"cgroupsPath":"CGROUP"}}`},
		"with the cgroup": {
			spec: `{"ociVersion":"1.1.0","process":{"args":["sh"]},"root":{"path":"rootfs","readonly":true},"future":{"x":1e400}}`,
			want: `{"ociVersion":"1.1.0","process":{"args":["sh"],"terminal":false},"root":{"path":"ROOT","readonly":true},"linux":{"cgroupsPath":"CGROUP"},"hooks":{},"future":{"x":1e400}}`,
		},
		"with the client's terminal": {
			spec:     `{"ociVersion":"1.1.0","process":{"args":["sh"]},"root":{"path":"rootfs"},"linux":{"cgroupsPath":"CGROUP"},"hooks":null}`,
			terminal: true,
			want:     `{"ociVersion":"1.1.0","process":{"args":["sh"],"terminal":true},"root":{"path":"ROOT"},"linux":{"cgroupsPath":"CGROUP"},"hooks":{}}`,
		},
		"without poststop hooks, and sources are absolute": {
			spec: `{"ociVersion":"1.1.0","process":{"args":["sh"]},"root":{"path":"rootfs"},"linux":{"cgroupsPath":"CGROUP"},
				"hooks":{"poststop":[{"path":"/bin/true"}],"prestart":[{"path":"/x"}]},
				"mounts":[{"destination":"/a","source":"a","options":["ro","rbind"]},{"destination":"/t","type":"tmpfs","source":"tmpfs"},
					{"destination":"/b","type":"bind","source":"/b","uidMappings":[]}]}`,
			want: `{"ociVersion":"1.1.0","process":{"args":["sh"],"terminal":false},"root":{"path":"ROOT"},"linux":{"cgroupsPath":"CGROUP"},
				"hooks":{"prestart":[{"path":"/x"}]},
				"mounts":[{"destination":"/a","source":"BUNDLE/a","options":["ro","rbind"]},{"destination":"/t","type":"tmpfs","source":"tmpfs"},
					{"destination":"/b","type":"bind","source":"/b","uidMappings":[]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bundle, err := w.createOf("a", c.spec, c.terminal)
			if err != nil {
				t.Fatal(err)
			}
			defer w.mustDelete("a", "")
			a, err := w.app("a")
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if a.bundle != bundle {
					t.Errorf("the bundle is %s, want the client's, %s", a.bundle, bundle)
				}
				return
			}
			got, err := os.ReadFile(filepath.Join(a.bundle, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			want := strings.NewReplacer("ROOT", a.rootfs, "CGROUP", a.cgroup.Path(), "BUNDLE", bundle).Replace(c.want)
			if !reflect.DeepEqual(numbers(t, got), numbers(t, []byte(want))) {
				t.Errorf("config.json is\n\t%s, want\n\t%s", got, want)
			}
			if st, err := os.Stat(filepath.Join(a.bundle, "config.json")); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("it holds an environment, and its mode is %v, %v", st.Mode(), err)
			}
		})
	}
}

// numbers decodes a document, and leaves its numbers as they are written.
func numbers(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func TestPoststopHooksFollowAnAddThatFailed(t *testing.T) {
	for e, want := range map[abi.Entrypoint]string{"features": "", abi.AppAdd: "x\n"} {
		t.Run(string(e), func(t *testing.T) {
			w := newWorld(t)
			ran := filepath.Join(t.TempDir(), "ran")
			w.stage1.on(e, fails(errors.New("deliberate")))
			_, err := w.createOf("a", `{"ociVersion":"1.1.0","process":{"args":["sh"]},"root":{"path":"rootfs"},
				"hooks":{"poststop":[{"path":"/bin/sh","args":["sh","-c","echo x >>`+ran+`"]}]}}`, false)
			if err == nil || errdefs.IsInvalidArgument(err) {
				t.Fatalf("create: %v", err)
			}
			if got, _ := os.ReadFile(ran); string(got) != want {
				t.Errorf("the hook ran as %q, want %q", got, want)
			}
		})
	}
}

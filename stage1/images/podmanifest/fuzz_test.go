package podmanifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// Whatever a pod's manifest asks for an app, it touches only files in the pod and the
// parts of the host that the manifest names.
func FuzzWhatAPodManifestAsksForIsInThePod(f *testing.F) {
	f.Add([]byte(`{"volumes":[{"name":"v","kind":"empty","mode":"0700"},{"name":"h","kind":"host","source":"/srv"}],
		"apps":[{"name":"a","app":{"exec":["/x"],"user":"0","group":"/etc","environment":[{"name":"PATH","value":"/x"}],
		"mountPoints":[{"name":"v","path":"/v"}]},"mounts":[{"volume":"h","path":"/h"}]}]}`), "a")
	f.Add([]byte(`{"apps":[{"name":"a","app":{"exec":["/x"],"mountPoints":[{"name":"../../x","path":"/v"}]}}]}`), "a")
	f.Add([]byte(`{"apps":[{"name":"../../a"}]}`), "../../a")
	f.Add([]byte(`{"volumes":[{"name":"../../x","kind":"empty"}],"apps":[{"name":"a","app":{"exec":["/x"]},"mounts":[{"volume":"../../x","path":"/v"}]}]}`), "a")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		base := t.TempDir()
		pod := filepath.Join(base, "1/2/3/4/pod")
		if err := os.MkdirAll(pod, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Chdir(pod)
		if err := os.WriteFile("pod", text, 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := podmanifest.Read()
		if err != nil {
			return
		}
		a, err := m.Named(name)
		if err != nil {
			return
		}
		if a.App == nil || len(a.App.Exec) == 0 {
			t.Fatalf("%+v has nothing to execute", a)
		}
		for _, v := range []string{"PATH=", "SHELL=", "USER=", "LOGNAME=", "HOME=", "AC_APP_NAME="} {
			if !strings.Contains("\x00"+strings.Join(a.App.RktEnv(name), "\x00"), "\x00"+v) {
				t.Errorf("no %s in %q", v, a.App.RktEnv(name))
			}
		}
		_, _, _ = a.App.Identity(".")
		shown, err := m.Shown(a)
		if err != nil {
			return
		}
		for _, s := range shown {
			path, err := s.Volume.Path()
			if err == nil && s.Volume.Kind == "empty" && (!filepath.IsLocal(path) || filepath.Dir(path) != "sharedVolumes") {
				t.Errorf("the volume %q is made at %q", s.Volume.Name, path)
			}
		}
		if entries, err := os.ReadDir(base); err != nil || len(entries) != 1 {
			t.Errorf("outside of the pod there are %v, %v", entries, err)
		}
	})
}

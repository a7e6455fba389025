package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A machine needs only `make install` and containerd's PATH.
func TestWhatIsInstalledRunsContainers(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		prefix := filepath.Join(t.TempDir(), "usr/local")
		if out, err := exec.Command("../scripts/install", suite.shims, prefix).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, path := range []string{
			"bin/rktctl", "libexec/containerd-shim-rkt/stage1/native/manifest", "share/containerd-shim-rkt/contrib/containerd/2.x/rkt.toml",
		} {
			if _, err := os.Stat(filepath.Join(prefix, path)); err != nil {
				t.Error(err)
			}
		}
		for _, program := range []string{"native/rootfs/native", "nspawn/rootfs/nspawn", "fly/rootfs/fly", "oci/rootfs/rktfront"} {
			st, err := os.Stat(filepath.Join(prefix, "libexec/containerd-shim-rkt/stage1", program))
			if err != nil || st.Mode() != 0o711 {
				t.Errorf("%s: %v, %v; want a file that only root can read", program, st, err)
			}
		}
		programs, err := c.release.find(c.context(t))
		if err != nil {
			t.Fatal(err)
		}
		opts := c.release.options("installed", programs, c.daemon.Namespace()+"-installed")
		opts.Shims = []string{filepath.Join(prefix, "bin")}
		own := c.private(t, c.release, opts)
		for _, runtime := range []string{"io.containerd.rkt.v1", "io.containerd.rkt-oci.v1"} {
			own.runtime = runtime
			own.run(t, []string{"--rm"}, own.id(), "echo", "installed").must(t).mustSay(t, "installed\n")
		}

		out, err := exec.Command(filepath.Join(prefix, "bin/rktctl"), "stage1", "list").CombinedOutput()
		for _, name := range []string{"native", "oci"} {
			if want := filepath.Join(prefix, "libexec/containerd-shim-rkt/stage1", name); err != nil || !strings.Contains(string(out), want+" ") {
				t.Errorf("rktctl stage1 list: %v, no %s in\n%s", err, want, out)
			}
		}
	})
}

package oci

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Without a request nothing says what to run: version 6 has an appc manifest, and in
// shell nobody reads that.
func TestACallOfVersion6IsRefusedInWords(t *testing.T) {
	entries, err := os.ReadDir("rootfs")
	must(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode()&0o111 == 0 {
			continue
		}
		path, err := filepath.Abs(filepath.Join("rootfs", e.Name()))
		must(t, err)
		cmd := exec.Command(path, "--net=host", podID)
		cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=" + os.Getenv("PATH")}
		release := children.Expect()
		out, err := cmd.CombinedOutput()
		release()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 254 || !strings.Contains(string(out), "there is no RKT_STAGE1_REQUEST") {
			t.Errorf("%s: %v, %q", e.Name(), err, out)
		}
		if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
			t.Errorf("%s has left %v", e.Name(), left)
		}
	}
}

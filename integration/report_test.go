package integration

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// A container that could not be created has no bundle any more when its pod, which has another
// container, is reported.
func TestAReportHasNoSecretOfADeletedContainer(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		pod := "group-" + c.id()
		c.running(t, []string{"testprog", "sleep", "1000"}, group(pod))
		failing := hook(`echo "no access with $TOKEN, $0 and $1" >&2; exit 1`)
		failing.Env = append(failing.Env, "TOKEN=CANARY-environment")
		failing.Args = append(failing.Args, "--password=CANARY-argument", "https://user:CANARY-password@example.com/")
		failing.Args[2] = strings.ReplaceAll(failing.Args[2], "$0", "${0#*=}")
		container := c.container(t, []string{"true"}, group(pod), hooks(t.TempDir(), map[string][]specs.Hook{"createRuntime": {failing}}))
		if _, err := container.NewTask(c.context(t), cio.NullIO); err == nil || !strings.Contains(err.Error(), "CANARY-environment, CANARY-argument and https://user:CANARY-password") {
			t.Fatalf("the hook has not failed: %v", err)
		}
		archive, dir := filepath.Join(t.TempDir(), "report.tar.gz"), t.TempDir()
		c.rktctl(t, "report", "--file", archive).must(t)
		if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if out, _ := exec.Command("grep", "-r", "CANARY-[aep]", dir).CombinedOutput(); len(out) > 0 {
			t.Errorf("a secret is in the archive: %s", out)
		}
		for _, file := range []string{"failed.json", "journal.json"} {
			out, _ := exec.Command("grep", "-r", "--include", file, `no access with \[redacted\], \[redacted\] and`, dir).CombinedOutput()
			if len(out) == 0 {
				t.Errorf("the hook's error is not in %s", file)
			}
		}
	})
}

package local_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// The debug app of a local pod is no app of it, as with containerd, and it ends with its target.
func TestAnAppOfALocalPodIsDebugged(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		p := b.sandbox()
		p.add("web", "exec sleep 1000")
		p.add("other", "exec sleep 1000")
		p.start("web")
		p.start("other")
		image := layout(t, map[string]any{"Env": []string{"PATH=/bin"}})
		debug := func(script string) []string {
			return []string{"debug", p.UUID()[:8], "--target", "web", "--image", image, "--", "sh", "-c", script}
		}
		if out, code := b.rktctl(debug("cat /proc/1/cmdline; exit 7")...); code != 7 || out != "sleep\x001000\x00" {
			t.Errorf("%d: %q", code, out)
		}
		if out, code := b.rktctl("debug", p.UUID(), "--image", image, "--", "true"); code != 2 || !strings.Contains(out, "other, web") {
			t.Errorf("of a pod with two apps: %d: %q", code, out)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(suite.bin, "rktctl"), debug("echo ready; trap '' TERM; while :; do sleep 1000; done")...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "RKT_DATA_DIR=" + b.DataDir}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		version1, _ := filepath.Glob("/sys/fs/cgroup/*/" + suite.cgroup + "/" + p.UUID() + "/rktctl-*")
		version2, _ := filepath.Glob("/sys/fs/cgroup/" + suite.cgroup + "/" + p.UUID() + "/rktctl-*")
		if len(version1)+len(version2) == 0 {
			t.Error("it has no cgroup below the pod's")
		}
		if names, err := p.Names(); err != nil || len(names) != 2 {
			t.Errorf("apps of the pod: %q, %v", names, err)
		}
		if err := p.Pod.Delete(t.Context(), "web", 0); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit code %d of rktctl", code)
		}
		p.expect("other", local.Running)
		if left, err := filepath.Glob(filepath.Join(b.DataDir, "debug/*/*")); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	})
}

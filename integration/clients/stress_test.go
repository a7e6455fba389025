package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// containerd-stress makes containers, and in a second run execs beside them, as fast as it can.
func TestContainerdStress(t *testing.T) {
	for name, flags := range map[string][]string{"containers": nil, "containers and execs": {"--exec"}} {
		t.Run(name, func(t *testing.T) {
			each(t, "stress", func(t *testing.T, n *node) { n.stress(t, flags) })
		})
	}
}

// stressed is the result that containerd-stress prints. It counts the execs of one worker only,
// and its number of failures is always zero: failures are in its log.
type stressed struct {
	Total     int     `json:"total"`
	Seconds   float64 `json:"seconds"`
	ExecTotal int     `json:"execTotal"`
}

const stressWorkers = 4

func (n *node) stress(t *testing.T, flags []string) {
	t.Helper()
	duration := 5 * time.Second
	if full() {
		duration = 20 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration+5*wait.Patience)
	defer cancel()
	args := append([]string{"keep-limits", filepath.Join(programsDir, "containerd-stress"), "--address", n.Address(), "--runtime", n.runtime, "--image", baseImage,
		"--json", "--concurrent", strconv.Itoa(stressWorkers), "--duration", duration.String()}, flags...)
	cmd := exec.CommandContext(ctx, filepath.Join(programsDir, "testprog"), args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = n.env, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("containerd-stress: %v\n%s", err, stderr.String())
	}
	var result stressed
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	t.Logf("%d containers and, of one of %d workers, %d execs in %.0f s", result.Total, stressWorkers, result.ExecTotal, result.Seconds)
	if strings.Contains(stderr.String(), "level=error") {
		t.Errorf("containers or execs have failed:\n%s", stderr.String())
	}
	if result.Total < stressWorkers || len(flags) > 0 && result.ExecTotal == 0 {
		t.Errorf("not every worker has made something: %s", stdout.String())
	}
}

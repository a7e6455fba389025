package cri

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Where things are in the enclosure.
const (
	nodeDir     = "/run/node"     // and the column's number
	programsDir = "/run/programs" // containerd, ctr, runc's shim, pause, testprog
	shimsDir    = "/run/shims"    // what `make build` made
	resultsFile = "/run/results.json"
	volumesDir  = "/run/volumes"
)

func TestMain(m *testing.M) {
	enclosure.Tests{Name: "cri", Missing: missing, Fill: fill, Run: runTests, After: writeDocument}.Main(m)
}

// missing is why the suite cannot run here.
func missing() string {
	if os.Getuid() != 0 {
		return "pods need root"
	}
	for _, p := range []string{"/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap"} {
		if _, err := os.Stat(p); err != nil {
			return "the pod network is made of Debian's containernetworking-plugins (make deps): " + err.Error()
		}
	}
	return ""
}

// fill copies the programs into the enclosure: where they are may be covered.
func fill(ctx context.Context, e enclosure.Enclosure) error {
	bin := os.Getenv("RKT_TEST_BIN")
	if bin == "" {
		bin = "../../bin"
	}
	if _, err := os.Stat(filepath.Join(bin, "containerd-shim-rkt-v1")); err != nil {
		return fmt.Errorf("run make build first: %w", err)
	}
	containerd, err := binaries.Containerd(ctx, os.Stderr)
	if err != nil {
		return err
	}
	for from, to := range map[string]string{containerd: programsDir, bin: shimsDir} {
		if out, err := exec.CommandContext(ctx, "cp", "-a", from, e.Path(to)).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s: %w: %s", from, err, out)
		}
	}
	for _, name := range []string{"testprog", "cri/pause"} {
		if _, err := binaries.Program(ctx, e.Path(programsDir), name); err != nil {
			return err
		}
	}
	return nil
}

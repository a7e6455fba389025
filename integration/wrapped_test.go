package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
)

// currentRunc is the column of oci with a current runc. Debian's is older.
const currentRunc = "runc-current"

// wrap makes an image of the stage1 oci for an OCI runtime.
func wrap(ctx context.Context, name string) error {
	line, err := name, error(nil)
	switch name {
	case currentRunc:
		line, err = binaries.Runc(ctx, os.Stderr)
	case "runsc":
		line, err = binaries.Runsc(ctx, os.Stderr)
		line += " --platform=systrap --network=host"
	default:
		_, err = exec.LookPath(name)
	}
	if err != nil {
		return fmt.Errorf("find or install %s: %w", name, err)
	}
	return binaries.Wrap(ctx, suite.shims, name, line)
}

// skipWhatDiffers skips a case that an OCI runtime other than runc cannot pass. The reasons are
// in stage1/images/oci/README.md.
func (c *column) skipWhatDiffers(t *testing.T) {
	t.Helper()
	differs := map[string][]string{
		"crun":  {"TestHooksReadTheState"},
		"runsc": {"TestHooksReadTheState", "TestRunAtATerminal", "TestPauseAndResume", "TestKillAllReachesEveryProcessWithAnySignal"},
	}
	if top, _, _ := strings.Cut(t.Name(), "/"); slices.Contains(differs[c.wraps], top) {
		t.Skipf("%s differs: see stage1/images/oci/README.md", c.wraps)
	}
}

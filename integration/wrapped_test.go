package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
)

// wrap makes an image of the stage1 oci for an OCI runtime, as its README says, and the
// link of the runtime that pins it.
func wrap(ctx context.Context, name string) error {
	line := name
	if name == "runsc" {
		path, err := binaries.Runsc(ctx, os.Stderr)
		if err != nil {
			return err
		}
		line = path + " --platform=systrap --network=host"
	} else if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	image := filepath.Join(suite.shims, "stage1", name)
	if out, err := exec.CommandContext(ctx, "cp", "-aT", filepath.Join(suite.shims, "stage1/oci"), image).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the image: %w: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(image, "rootfs/runtimes"), []byte(line+"\n"), 0o644); err != nil {
		return err
	}
	err := os.Symlink("containerd-shim-rkt-v1", filepath.Join(suite.shims, "containerd-shim-rkt-"+name+"-v1"))
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// skipWhatDiffers skips a case that another OCI runtime than runc cannot pass, for reasons
// of its own: stage1/images/oci/README.md has them.
func (c *column) skipWhatDiffers(t *testing.T) {
	t.Helper()
	differs := map[string][]string{
		"crun":  {"TestHooksReadTheState"},
		"runsc": {"TestHooksReadTheState", "TestRunAtATerminal", "TestT7PauseAndResume", "TestT9KillAllReachesEveryProcessWithAnySignal"},
	}
	if top, _, _ := strings.Cut(t.Name(), "/"); slices.Contains(differs[c.wraps], top) {
		t.Skipf("%s differs: see stage1/images/oci/README.md", c.wraps)
	}
}

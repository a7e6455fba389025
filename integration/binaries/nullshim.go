package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// nullServer is the server program of the shim above an empty pod.
const nullServer = "containerd-shim-null-server"

// NullShim builds the shim above an empty pod into dir: the shim's own front as
// containerd-shim-null-v1, and its server. The working directory is that of the module of the
// integration tests.
func NullShim(ctx context.Context, dir string) error {
	for _, args := range [][]string{
		{"-ldflags", "-s -w -X main.server=" + nullServer, "-o", filepath.Join(dir, "containerd-shim-null-v1"), "./cmd/containerd-shim-rkt-v1"},
		{"-ldflags", "-s -w", "-o", filepath.Join(dir, nullServer), "./internal/nullshim"},
	} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath"}, args...)...)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the empty shim: %w: %s", err, out)
		}
	}
	return nil
}

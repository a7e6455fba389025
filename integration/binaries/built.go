package binaries

import (
	"fmt"
	"os"
	"path/filepath"
)

// Built checks that a directory has the shim under test, and returns the directory. If dir is
// empty, it is RKT_TEST_BIN, or else the directory that `make build` fills, relative to a
// package two levels below the repository's root.
func Built(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv("RKT_TEST_BIN")
	}
	if dir == "" {
		dir = "../../bin"
	}
	if _, err := os.Stat(filepath.Join(dir, "containerd-shim-rkt-v1")); err != nil {
		return "", fmt.Errorf("run make build first: %w", err)
	}
	return dir, nil
}

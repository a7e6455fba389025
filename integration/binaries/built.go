package binaries

import (
	"fmt"
	"os"
	"path/filepath"
)

// ServerProgram is the name of the shim's server program.
const ServerProgram = "containerd-shim-rkt-server-1"

// Built returns the directory of the binaries under test, after a check that the shim is in it.
// That is dir, or the value of RKT_TEST_BIN if dir is empty, or the directory that `make build`
// fills if both are empty. The last is relative to the working directory of tests of a package
// two levels below the repository's root.
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

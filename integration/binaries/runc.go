package binaries

import (
	"context"
	"io"
	"path/filepath"
)

// runc is the module whose version integration/runc/go.mod pins.
const runc = "github.com/opencontainers/runc"

// Runc returns the path of a current runc, which Debian's package is not. The build needs
// a C compiler and libseccomp's headers, and takes half a minute on a machine where the
// program is not there yet. Among what is prebuilt it has the name runc-current: the
// directory may be in a PATH.
func Runc(ctx context.Context, log io.Writer) (string, error) {
	if dir, ok := prebuilt(); ok {
		return filepath.Join(dir, "runc-current"), nil
	}
	return buildRunc(ctx, log, "runc")
}

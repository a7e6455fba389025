package binaries

import (
	"context"
	"io"
	"path/filepath"
)

// runc is the module whose version integration/runc/go.mod pins.
const runc = "github.com/opencontainers/runc"

// Runc returns the path of a current runc; Debian's package is older. The build needs a C
// compiler and libseccomp's headers. The first call on a machine takes half a minute. In the
// directory of PrebuiltVariable the program is called runc-current, because that directory may
// be in a PATH.
func Runc(ctx context.Context, log io.Writer) (string, error) {
	if dir, ok := prebuilt(); ok {
		return filepath.Join(dir, "runc-current"), nil
	}
	return buildRunc(ctx, log, "runc")
}

package binaries

import (
	"context"
	"fmt"
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
	module, version, err := pinned(ctx, "runc", runc)
	if err != nil {
		return "", err
	}
	dir, err := Cached(cacheName("runc", version), func(dir string) error {
		done := Progress(log, "building runc "+version+" from its module (once, half a minute)")
		defer done()
		_, err := outputWith(ctx, "CGO_ENABLED=1", "-C", module, "build", "-trimpath", "-ldflags", "-s -w -X main.version="+version[1:],
			"-tags", "seccomp", "-o", dir+"/", runc)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("runc %s: %w", version, err)
	}
	return filepath.Join(dir, "runc"), nil
}

package binaries

import (
	"context"
	"io"
	"path/filepath"
)

// gvisor is the module of runsc, whose version gvisor/go.mod pins. gVisor publishes such
// modules for the go command; they contain the files that Bazel generates.
const gvisor = "gvisor.dev/gvisor"

// Runsc returns the path of gVisor's runsc. The first call on a machine takes three minutes of
// a processor.
func Runsc(ctx context.Context, log io.Writer) (string, error) {
	module, version, err := pinned(ctx, "gvisor", gvisor)
	if err != nil {
		return "", err
	}
	name := cacheName("runsc", version)
	dir, err := Cached(name, func(dir string) error {
		done := Progress(log, "building runsc "+version+" from its module (once, two minutes)")
		defer done()
		return buildIn(ctx, module, dir, gvisor+"/runsc")
	})
	return filepath.Join(dir, "runsc"), err
}

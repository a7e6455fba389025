package binaries

import (
	"context"
	"io"
	"path/filepath"
)

// gvisor is the module of runsc, whose version gvisor/go.mod pins. It is one of those that
// gVisor generates for the go command, with what Bazel makes for its own.
const gvisor = "gvisor.dev/gvisor"

// Runsc returns the path of gVisor's runsc. It takes three minutes of a processor on a
// machine where it is not there yet.
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

package binaries

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
)

// gvisor is the module of runsc, whose version gvisor/go.mod pins. It is one of those that
// gVisor generates for the go command, with what Bazel makes for its own.
const gvisor = "gvisor.dev/gvisor"

// Runsc returns the path of gVisor's runsc. It takes three minutes of a processor on a
// machine where it is not there yet.
func Runsc(ctx context.Context, log io.Writer) (string, error) {
	module, err := nested(ctx, "gvisor")
	if err != nil {
		return "", err
	}
	version, err := output(ctx, "-C", module, "list", "-m", "-f", "{{.Version}}", gvisor)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("runsc-%s-%s-%s", version, runtime.Version(), runtime.GOARCH)
	dir, err := Cached(name, func(dir string) error {
		done := Progress(log, "building runsc "+version+" from its module (once, two minutes)")
		defer done()
		return buildIn(ctx, module, dir, gvisor+"/runsc")
	})
	return filepath.Join(dir, "runsc"), err
}

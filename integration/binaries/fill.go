package binaries

import (
	"context"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Fill brings what every suite needs into an enclosure: containerd as the directory
// programs, and what `make build` makes as shims. The copies come after.
func Fill(ctx context.Context, e enclosure.Enclosure, programs, shims string, copies ...enclosure.Copy) error {
	bin, err := Built("")
	if err != nil {
		return err
	}
	containerd, err := Containerd(ctx, os.Stderr)
	if err != nil {
		return err
	}
	return e.Fill(ctx, append([]enclosure.Copy{{From: containerd, To: programs}, {From: bin, To: shims}}, copies...)...)
}

package binaries

import (
	"context"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Fill copies the programs that every suite needs into an enclosure: those of containerd into
// the directory programs, and those of `make build` into shims. It then makes the other copies.
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

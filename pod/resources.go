package pod

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// parseResources reads an OCI linux.resources object. For any other text it
// returns errdefs.ErrInvalidArgument.
func parseResources(text []byte) (*spec.Resources, error) {
	r, err := spec.Read[specs.LinuxResources](text)
	if err != nil {
		return nil, fmt.Errorf("linux.resources: %v: %w", err, errdefs.ErrInvalidArgument)
	}
	return r, nil
}

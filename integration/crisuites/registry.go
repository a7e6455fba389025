package main

import (
	"runtime"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/registry"
)

// newRegistry returns a registry with every image that a suite pulls, under the names that are
// constants in the suite.
func newRegistry(su suite) (*registry.Registry, error) {
	images, err := su.images()
	if err != nil {
		return nil, err
	}
	r := registry.New()
	for _, img := range images {
		if len(img.Config.Env) == 0 {
			img.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		}
		if err := r.Add(img, ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

package supervisor

import (
	"errors"
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// checkRequest returns an error if a request is not of this interface version.
func checkRequest(r *abi.Request) error {
	if r.Version != abi.Version {
		return serve.Unsupported("the request of %s: version %d, want %d", r.Entrypoint, r.Version, abi.Version)
	}
	return nil
}

func decodeSpec(raw abi.RawJSON) (*specs.Spec, error) {
	var s specs.Spec
	if err := plainjson.Decode(raw, &s); err != nil {
		return nil, fmt.Errorf("the app's spec: %w", err)
	}
	if s.Process == nil {
		return nil, errors.New("the app's spec has no process")
	}
	if s.Linux == nil {
		s.Linux = &specs.Linux{}
	}
	return &s, nil
}

func decodeProcess(raw abi.RawJSON) (*specs.Process, error) {
	var p specs.Process
	if err := plainjson.Decode(raw, &p); err != nil {
		return nil, fmt.Errorf("the exec's process: %w", err)
	}
	return &p, nil
}

// stdio returns the app's files of a call, with the owner that the options name. All
// three files must be there.
func stdio(c *serve.Asked) ([3]*os.File, error) {
	for fd, f := range c.Stdio {
		if f == nil {
			return c.Stdio, fmt.Errorf("%s: descriptor %d is not open", c.Entrypoint, fd)
		}
	}
	return c.Stdio, container.OwnStdio(c.Stdio[:], c.Options)
}

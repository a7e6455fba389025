package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// checkRequest returns an error if a request is not of this interface version.
func checkRequest(r *abi.Request) error {
	if r.Version != abi.Version {
		return Unsupported("the request of %s: version %d, want %d", r.Entrypoint, r.Version, abi.Version)
	}
	return nil
}

// document has the fields of a spec that decodeSpec reads. It is not a specs.Spec,
// because encoding/json would build and keep tables of all its types. Stage 0 refuses the
// fields of other platforms.
type document struct {
	Version     string            `json:"ociVersion"`
	Process     *specs.Process    `json:"process"`
	Root        *specs.Root       `json:"root"`
	Hostname    string            `json:"hostname"`
	Domainname  string            `json:"domainname"`
	Mounts      []specs.Mount     `json:"mounts"`
	Hooks       *specs.Hooks      `json:"hooks"`
	Annotations map[string]string `json:"annotations"`
	Linux       *specs.Linux      `json:"linux"`
}

func decodeSpec(raw abi.RawJSON) (*specs.Spec, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("the app's spec: %w", err)
	}
	if d.Process == nil {
		return nil, errors.New("the app's spec has no process")
	}
	if d.Linux == nil {
		d.Linux = &specs.Linux{}
	}
	return &specs.Spec{
		Version: d.Version, Process: d.Process, Root: d.Root, Hostname: d.Hostname, Domainname: d.Domainname,
		Mounts: d.Mounts, Hooks: d.Hooks, Annotations: d.Annotations, Linux: d.Linux,
	}, nil
}

func decodeProcess(raw abi.RawJSON) (*specs.Process, error) {
	var p specs.Process
	if err := json.Unmarshal(raw, &p); err != nil {
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

package container

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
)

// State returns the OCI state of an app, which hooks read from their stdin. pid is the
// app's pid in the PID namespace of the hook. Hooks that the supervisor runs get the
// host's pid.
func State(spec *specs.Spec, id, bundle, status string, pid int) []byte {
	return encodeState(stateOf(spec, id, bundle), specs.ContainerState(status), pid)
}

// stateOf returns the part of an app's state that does not change.
func stateOf(spec *specs.Spec, id, bundle string) specs.State {
	return specs.State{Version: specs.Version, ID: id, Bundle: bundle, Annotations: spec.Annotations}
}

func encodeState(s specs.State, status specs.ContainerState, pid int) []byte {
	s.Status, s.Pid = status, pid
	b, err := plainjson.Encode(s)
	if err != nil {
		panic(err) // strings and a number can always be marshalled
	}
	return b
}

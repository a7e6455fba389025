package container

import (
	"encoding/json"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// State returns the OCI state of an app as hooks read it from their stdin. pid
// is the one that the hook sees: the host's for hooks that the supervisor runs.
func State(spec *specs.Spec, id, bundle, status string, pid int) []byte {
	b, err := json.Marshal(specs.State{
		Version:     specs.Version,
		ID:          id,
		Status:      specs.ContainerState(status),
		Pid:         pid,
		Bundle:      bundle,
		Annotations: spec.Annotations,
	})
	if err != nil {
		panic(err) // a struct of strings and a number always marshals
	}
	return b
}

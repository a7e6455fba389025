package supervisor

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc/rlimit"
)

// limit gives a process the limits of this process, which are containerd's, where its spec has none. On the host it
// would inherit them; in the VM it would inherit those that the guest's kernel gives its first process.
func limit(p *specs.Process) {
	for _, l := range rlimit.All() {
		name := "RLIMIT_" + l.Name
		if !slices.ContainsFunc(p.Rlimits, func(r specs.POSIXRlimit) bool { return r.Type == name }) {
			p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: name, Soft: l.Cur, Hard: l.Max})
		}
	}
}

// limited returns the process of an exec with these limits.
func limited(process abi.RawJSON) (abi.RawJSON, error) {
	var p specs.Process
	if err := json.Unmarshal(process, &p); err != nil {
		return nil, fmt.Errorf("its process: %w", err)
	}
	limit(&p)
	return json.Marshal(&p)
}

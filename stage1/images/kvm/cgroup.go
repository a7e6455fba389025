package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// machineCgroup is the cgroup in which a machine is limited and counted.
type machineCgroup struct {
	dirs []string
	own  string // the directory to remove, if there is one
}

// newMachineCgroup returns the cgroup that the client has made for the pod, or none, if there is none:
// the machine then stays in the cgroup of this process. With version 2, also beside version 1, a cgroup that
// has apps below it may take no process, so the machine gets a cgroup of its own beside them.
func newMachineCgroup(pod *abi.Cgroup, uuid string) (machineCgroup, error) {
	if pod == nil {
		return machineCgroup{}, nil
	}
	dirs, above := pod.Dirs, pod.Unified
	if pod.Version == 2 {
		dirs, above = nil, pod.Dirs[0]
	}
	if above == "" {
		return machineCgroup{dirs: dirs}, nil
	}
	own := filepath.Join(above, "rkt-machine-"+uuid)
	if err := os.Mkdir(own, 0o755); err != nil {
		return machineCgroup{}, fmt.Errorf("make the machine's cgroup: %w", err)
	}
	return machineCgroup{append(slices.Clone(dirs), own), own}, nil
}

// remove removes the cgroup of a machine that has ended. If this process is killed before, whoever removes
// the pod's cgroup removes this one, too.
func (c machineCgroup) remove() {
	if c.own != "" {
		_ = os.Remove(c.own)
	}
}

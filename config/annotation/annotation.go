// Package annotation has the keys of this runtime's annotations. It is apart from package
// config because manager/early reads annotations before anything else is initialised.
package annotation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec/spelling"
)

// Annotations of pods and containers. Keys that begin with Prefix and a dot or a slash belong
// to this shim. A key that is not listed here is refused.
const (
	Prefix = "io.containerd.rkt.v1"
	// Stage1 names the stage1 that isolates the pod.
	Stage1 = Prefix + "/stage1"
	// Group puts a container into the pod of that name.
	Group = Prefix + ".group"
	// KVMCPUs, KVMMemory and KVMType are read by the stage1 kvm. Other stage1s ignore them.
	KVMCPUs   = Prefix + "/kvm.cpus"
	KVMMemory = Prefix + "/kvm.memory"
	KVMType   = Prefix + "/kvm.type"
)

// Known returns the keys that a client may set.
func Known() []string { return []string{Stage1, Group, KVMCPUs, KVMMemory, KVMType} }

// Check refuses unknown keys that begin with our prefix, because a misspelt key would
// otherwise have no effect. The error is for the author of the annotations.
func Check(annotations map[string]string) error {
	known := Known()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		rest, ours := strings.CutPrefix(key, Prefix)
		if !ours || rest == "" || rest[0] != '.' && rest[0] != '/' || slices.Contains(known, key) {
			continue
		}
		return fmt.Errorf("unknown annotation %q: did you mean %q? this runtime knows %s and refuses others below %s: correct the key or remove it",
			key, spelling.Nearest(key, known), strings.Join(known, ", "), Prefix)
	}
	return nil
}

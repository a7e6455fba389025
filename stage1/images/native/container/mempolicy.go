package container

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// memoryPolicy has the arguments of set_mempolicy(2).
type memoryPolicy struct {
	Mode  int // with its flags
	Nodes []int
}

func memoryModes() map[specs.MemoryPolicyModeType]int {
	return map[specs.MemoryPolicyModeType]int{
		specs.MpolDefault: unix.MPOL_DEFAULT, specs.MpolBind: unix.MPOL_BIND, specs.MpolInterleave: unix.MPOL_INTERLEAVE,
		specs.MpolWeightedInterleave: unix.MPOL_WEIGHTED_INTERLEAVE, specs.MpolPreferred: unix.MPOL_PREFERRED,
		specs.MpolPreferredMany: unix.MPOL_PREFERRED_MANY, specs.MpolLocal: unix.MPOL_LOCAL,
	}
}

func memoryFlags() map[specs.MemoryPolicyFlagType]int {
	return map[specs.MemoryPolicyFlagType]int{
		specs.MpolFNumaBalancing: unix.MPOL_F_NUMA_BALANCING, specs.MpolFRelativeNodes: unix.MPOL_F_RELATIVE_NODES,
		specs.MpolFStaticNodes: unix.MPOL_F_STATIC_NODES,
	}
}

// parseMemoryPolicy translates a policy. The kernel checks whether its mode, flags and
// nodes fit together.
func parseMemoryPolicy(p *specs.LinuxMemoryPolicy) (*memoryPolicy, error) {
	if p == nil {
		return nil, nil
	}
	mode, ok := memoryModes()[p.Mode]
	if !ok {
		return nil, refuse("linux.memoryPolicy.mode", "%q is not supported", p.Mode)
	}
	for _, f := range p.Flags {
		flag, ok := memoryFlags()[f]
		if !ok {
			return nil, refuse("linux.memoryPolicy.flags", "%q is not supported", f)
		}
		mode |= flag
	}
	nodes, err := parseNumbers(p.Nodes)
	if err != nil {
		return nil, fmt.Errorf("linux.memoryPolicy.nodes: %w", err)
	}
	return &memoryPolicy{mode, nodes}, nil
}

// set gives this thread the policy. The program inherits it.
func (p *memoryPolicy) set() error {
	if p == nil {
		return nil
	}
	var nodes unix.CPUSet
	for _, n := range p.Nodes {
		nodes.Set(n)
	}
	return doing("linux.memoryPolicy", unix.SetMemPolicy(p.Mode, &nodes))
}

package seccomp

import (
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// architecture is one way in which a process of this machine makes system calls.
type architecture struct {
	name   specs.Arch
	audit  uint32 // AUDIT_ARCH_*, by which the kernel identifies it to the filter
	column int    // in the table
	wide   bool   // arguments have 64 bits
	bit    uint32 // set in every number; only x32 has one

	// Numbers of the calls that multiplex others; 0 if the architecture has none.
	socketcall, ipc uint32
}

// machine is the kind of machine for which a profile is compiled. Compile uses all
// architectures of the kind, although some machines of the kind can only run programs of
// the native one.
type machine struct {
	architectures []architecture // the native one first
	table         string         // of system calls, as lookup reads it
}

// number returns the number of a system call on an architecture, from the call's line of
// the table.
func (a *architecture) number(numbers [maxColumns]int) (uint32, bool) {
	n := numbers[a.column]
	if n == absent {
		return 0, false
	}
	return uint32(n) | a.bit, true
}

// x32Bit is set in the number of each x32 system call. x32 has the same audit architecture
// as x86-64, so only this bit distinguishes them.
const x32Bit = 1 << 30

// known lists the architectures that OCI names. Compile accepts all of them on every
// machine, because a profile for several kinds of machines lists many.
func known() []specs.Arch {
	return []specs.Arch{
		specs.ArchMIPS, specs.ArchMIPS64, specs.ArchMIPS64N32,
		specs.ArchMIPSEL, specs.ArchMIPSEL64, specs.ArchMIPSEL64N32,
		specs.ArchPPC, specs.ArchPPC64, specs.ArchPPC64LE,
		specs.ArchS390, specs.ArchS390X, specs.ArchPARISC, specs.ArchPARISC64,
		specs.ArchRISCV64, specs.ArchLOONGARCH64, specs.ArchM68K, specs.ArchSH, specs.ArchSHEB,
		specs.ArchX86, specs.ArchX86_64, specs.ArchX32, specs.ArchARM, specs.ArchAARCH64,
	}
}

// selected returns the architectures that a profile covers, in the machine's order. As with
// libseccomp, the native one is always covered. An architecture that this machine cannot
// execute is accepted and left out: like every architecture that the profile does not
// cover, its system calls kill the process.
func (m machine) selected(listed []specs.Arch) ([]architecture, error) {
	if len(m.architectures) == 0 {
		return nil, fmt.Errorf("linux.seccomp: %w", errNoTable)
	}
	for _, name := range listed {
		if !slices.Contains(known(), name) {
			return nil, fmt.Errorf("linux.seccomp.architectures: %q is not an architecture", name)
		}
	}
	covered := []architecture{m.architectures[0]}
	for _, a := range m.architectures[1:] {
		if slices.Contains(listed, a.name) {
			covered = append(covered, a)
		}
	}
	return covered, nil
}

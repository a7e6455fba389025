package seccomp

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// local returns this machine.
func local() machine {
	return machine{table: table, architectures: []architecture{
		{name: specs.ArchAARCH64, audit: unix.AUDIT_ARCH_AARCH64, column: 0, wide: true},
		{name: specs.ArchARM, audit: unix.AUDIT_ARCH_ARM, column: 1},
	}}
}

package seccomp

import (
	_ "embed"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// table has a line for each system call: its name, and its number on each of local's
// architectures, in their order. The number is "-" if the architecture lacks the call. The
// lines are sorted. go generate writes the table.
//
//go:embed table_arm64.txt
var table string

// local returns this machine.
func local() machine {
	return machine{table: table, architectures: []architecture{
		{name: specs.ArchAARCH64, audit: unix.AUDIT_ARCH_AARCH64, column: 0, wide: true},
		{name: specs.ArchARM, audit: unix.AUDIT_ARCH_ARM, column: 1},
	}}
}

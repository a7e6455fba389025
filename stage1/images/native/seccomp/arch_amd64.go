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
//go:embed table_amd64.txt
var table string

// local returns this machine.
func local() machine {
	return machine{table: table, architectures: []architecture{
		{name: specs.ArchX86_64, audit: unix.AUDIT_ARCH_X86_64, column: 0, wide: true},
		{name: specs.ArchX86, audit: unix.AUDIT_ARCH_I386, column: 1, socketcall: 102, ipc: 117},
		// Pointers and longs have 32 bits, so libseccomp compares 32 bits.
		{name: specs.ArchX32, audit: unix.AUDIT_ARCH_X86_64, column: 2, bit: x32Bit},
	}}
}

// Package nofile knows the limit of open files that this process was started
// with. It does nothing else.
//
// Package syscall raises the soft limit when it is initialised, and does not
// export the original. This package imports nothing, so it is initialised
// earlier: among the packages whose imports are initialised, the one with the
// first import path is next (Go specification, "Package initialization").
package nofile

import "unsafe"

//go:linkname rawSyscall6 syscall.RawSyscall6
func rawSyscall6(number, a, b, c, d, e, f uintptr) (r1, r2, errno uintptr)

// Original holds the soft and the hard limit. It must not be changed.
var Original = read()

func read() (limit [2]uint64) {
	const rlimitNofile = 7
	rawSyscall6(prlimit64, 0, rlimitNofile, 0, uintptr(unsafe.Pointer(&limit)), 0, 0)
	return limit
}

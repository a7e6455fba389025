//go:build race

package fork

// A program with the race detector has a C library, which has registered memory with rseq(2):
// the kernel ends a process that has unmapped it. No stage1 is built so. Other programs with a C library
// make no children: see parseLayout.
const forgets = false

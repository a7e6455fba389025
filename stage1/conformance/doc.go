// Package conformance is the kit that tells whether a stage1 image keeps the ABI
// of docs/stage1-abi.md: it runs every entrypoint, in and out of order, and looks
// at what the kernel shows of the result.
//
//	Open ──► Kit ──► Run ──► Report ──► WriteTAP, WriteJSON
//	image rendered    │
//	                  └─ for each Check a trial: a directory, a pod, what is left
//
// A pod is driven in two ways. A wholePod is package pod with the image below it,
// as the shim has it; a barePod calls one entrypoint at a time, for what a shim
// never does: a call too many, in the wrong state, killed half-way.
//
// What a trial leaves behind, be it a process, a mount, a cgroup or a file, is a
// failure of its check, and is removed. So is everything when a check hangs or the
// context ends.
//
// The programs that run in apps are this one: Program in the caller's main makes
// the executable serve as both, so that there is nothing else to build, to ship or
// to trust.
//
// The package does not judge what an isolation is worth: a chroot can be as
// conforming as a virtual machine. It is linked by rktctl, and never by the shim.
package conformance

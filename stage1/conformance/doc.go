// Package conformance is the kit that checks a stage1 image against the ABI of
// docs/stage1-abi.md: it runs every entrypoint, in and out of order, and looks
// at the kernel's view of the result.
//
//	Open ──► Kit ──► Run ──► Report ──► WriteTAP, WriteJSON
//	image rendered    │
//	                  └─ some processes, each with a kit of its own (worker.go):
//	                     for each Check a trial: a directory, a pod, a look for remains
//
// A pod is driven in two ways. A wholePod is package pod with the image below it,
// as in the shim. A barePod calls one entrypoint at a time, and makes calls that a shim
// never makes: twice, in the wrong state, or killed half-way.
//
// If a process, a mount, a cgroup or a file remains after a trial, its check has failed, and
// the kit removes it. It also removes everything if a check hangs or the context ends.
//
// The programs that run in apps are this executable: the caller's main calls Program. So
// there is no other program to build, to ship or to trust.
//
// A stage1 is believed nothing: each field of config.json that it declares is asked for, with a
// value that isolates, and the program of an app and that of an exec report what they see. A
// field that no program can see is listed as such (unchecked). The package does not judge how
// much a stage1 declares: a chroot can conform as well as a virtual machine. It is linked into rktctl, never into the shim.
package conformance

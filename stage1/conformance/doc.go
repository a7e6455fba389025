// Package conformance is the kit that checks a stage1 image against the ABI of
// docs/stage1-abi.md. It calls every entrypoint, in legal and illegal orders, and compares
// the result with the state of the kernel.
//
//	Open ──► Kit ──► Run ──► Report ──► WriteTAP, WriteJSON
//	image rendered    │
//	                  └─ some processes, each with a kit of its own (worker.go):
//	                     for each Check a trial: a directory, a pod, a search for remains
//
// Checks use two kinds of pods. A wholePod is package pod with the image below it, as in
// the shim. A barePod calls one entrypoint at a time, and makes calls that a shim never
// makes: twice, in the wrong state, or killed half-way.
//
// If a process, a mount, a cgroup or a file remains after a trial, the check has failed,
// and the kit removes the remains. It also removes everything if a check hangs or the
// context ends.
//
// The programs in apps are this executable, because the caller's main calls Program. So no
// other program has to be built, installed or trusted.
//
// The kit does not rely on a stage1's declarations. It asks for each declared field of
// config.json, with a value that isolates, and the program of an app and that of an exec
// report what they see. Fields whose effect no program can see are listed as such
// (unchecked). The package does not judge how much a stage1 declares: a chroot can conform
// as well as a virtual machine. It is linked into rktctl, and never into the shim.
package conformance

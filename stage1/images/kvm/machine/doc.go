// Package machine runs virtual machines: QEMU, a virtiofsd for each directory that a machine shares,
// and the channel to QEMU's monitor. It does not know pods, apps or what runs in a machine.
//
//	Boot ──► QEMU runs ──► Done
//	              │
//	         Stop │ QEMU or a virtiofsd ends │ this process ends
//	              └──► the others are killed
//
// A machine never outlives the process that booted it.
package machine

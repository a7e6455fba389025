// Package proc deals with processes and descriptors: which process a pid is, and how it
// ended. Programs inside a pod link it, too, so it imports only the standard library and
// golang.org/x/sys, and does nothing before it is called.
//
// A Process is a pidfd whose start time was checked when it was opened. If another process has
// the pid by then, opening it returns an error. Only a child of this process is signalled by its
// pid: no other process gets the pid before Children reaps the child, and Children does not reap
// it while it is signalled.
//
// Children manages the children of a process that is a child subreaper. It distinguishes
// three kinds:
//
//	made      by Make or Start
//	taken     by Take, Adopt or AdoptLater: inherited, and known to a caller
//	unknown   inherited, and reaped when they end
//
// A child that was made or taken is reaped only after its verdict, so that its exit can be
// recorded before:
//
//	undecided ── Decide ──▶ (ends) record ──▶ reaped ──▶ ended
//	    └─────── Drop ────▶ killed ─────────▶ reaped
//
// A child costs neither a descriptor nor a goroutine nor a thread until it has ended: SIGCHLD
// announces the end.
//
// The package also has functions for processes that stage 0 and programs of a stage1 share.
// LookPath finds a program. OpenTerminal and Slave open a terminal. Send and Receive pass
// descriptors between processes, Inherited finds those that this process was given, and
// Memory makes a file of a text that another process will read. Control and WaitRead make
// system calls with the descriptor of an os.File, Lock takes a flock, and RemoveAll removes a tree of
// any depth. IsChrooted compares the root of this process with that of its mount namespace.
//
// The package knows no pod, no app and no stage1, and writes no file.
package proc

// Package proc is processes and descriptors as the kernel has them: which process a pid
// is, and how it ended. Programs inside a pod link it, too: it imports the standard library and
// golang.org/x/sys only, and does nothing before it is called.
//
// A bare pid is never signalled. A Process is a pidfd whose start time was checked when it
// was opened, so a pid that another process has by now is an error.
//
// Children is the bookkeeping of a process that is a child subreaper. It keeps
// three kinds of children apart:
//
//	made      by Make or Start
//	taken     by Take, Adopt or AdoptLater: inherited, and known to a caller
//	unknown   inherited, and reaped when they end
//
// A child that was made or taken is reaped after its verdict only, so that its exit can be
// recorded before:
//
//	undecided ── Decide ──▶ (ends) record ──▶ reaped ──▶ ended
//	    └─────── Drop ────▶ killed ─────────▶ reaped
//
// Waiting costs a pidfd in the runtime's poller per process, and no thread.
//
// The package also has the steps around a process that stage 0 and programs of a stage1
// share: LookPath finds its program, OpenTerminal and Slave open its terminal, Send and
// Receive pass its descriptors, Inherited finds those that it was given, and Memory is a
// file for what it is to read. Control and WaitRead make system calls with the descriptor of
// an os.File, and Lock takes a flock.
//
// The package knows no pod, no app and no stage1, and writes no file.
package proc

// Package proc is what a pod knows of processes from outside: who a pid is, and
// how it ended.
//
// A bare pid is never signalled. A Process is a pidfd whose start time was
// checked when it was opened, so a pid that the kernel has given to somebody
// else is an error and not an accident.
//
// Children is the bookkeeping of a process that is a child subreaper. It keeps
// three kinds of children apart:
//
//	started   by Start: waited for by their Child, reaped by nobody else
//	adopted   by Adopt: orphans that somebody asked about; their end is
//	          recorded before they are reaped
//	unknown   all other orphans: reaped in silence as they end
//
// Waiting costs a pidfd in the runtime's poller per process, and no thread.
//
// The package knows no pod, no app and no stage1, and writes no file.
package proc

// Package supervisor is the host's side of a machine's pod: it answers stage 0's calls by calls
// of the agent in the machine, carries the streams, makes the proxies, shares the files,
// forwards connections, and records the exits.
//
//	stage 0 ──serve──► Supervisor ──channel──► agent ──serve──► native's supervisor
//	                       │ clone
//	                     proxies, one for each app and exec
//
// The machine is hostile: a message that the agent never sends ends the machine. It is told
// only of what it has to run, and everything that it says concerns its own apps alone.
//
// A process is started, has ended, or is being made by the call that makes it; the states of
// apps are those of native, in the machine.
package supervisor

// Package wait has functions by which tests wait for conditions that no event announces.
// All have the same limit, the same pace and the same form of failure. It also runs the
// tests of packages that start goroutines, and fails them if a goroutine is left.
//
// Only tests import it, and it imports no package of this repository. The module
// integration has these files as symbolic links in integration/wait: if it required the
// main module, the containerd that it builds would get the main module's versions of the
// modules that both depend on.
//
// If there is an event (a pidfd, a pipe, a context), a test waits for the event. The
// function For waits for a channel, with the same limit.
package wait

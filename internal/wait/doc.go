// Package wait is how the tests of both modules wait for what announces itself to
// nobody: one patience, one pace, one way to fail. It also runs the tests of packages
// that start goroutines, and waits for the end of those.
//
// Only tests import it, and it imports nothing of ours. The module integration has these
// files as symbolic links in integration/wait: did it require our module, the
// containerd that it builds would get our versions of what both depend on.
//
// It does not replace a wait for what does announce itself: a pidfd, a pipe, a
// context. A channel is such a thing, and For adds the patience.
package wait

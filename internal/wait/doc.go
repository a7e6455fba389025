// Package wait is how the tests of both modules wait for what announces itself to
// nobody: one patience, one pace, one way to fail. It also runs the tests of packages
// that start goroutines, and waits for the end of those.
//
// Only tests and the module integration import it, and it imports nothing of ours.
// It does not replace a wait for what does announce itself: a pidfd, a pipe, a
// context. A channel is such a thing, and For adds the patience.
package wait

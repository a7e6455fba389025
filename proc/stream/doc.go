// Package stream interprets the errors of streams: which ones end a stream or a listener, and which ones
// pass. The shim and the agent of kvm read terminals through it.
//
// The package carries no bytes from one place to another; its callers do.
package stream

// Package clients drives clients of containerd that have no suite of their own against the
// shim: BuildKit's daemon, whose worker is a containerd, and containerd-stress. Beside them run
// the same clients with runc's shim.
//
// The names of their cgroups are constant, so the tests run in an enclosure.
package clients

// Package rktfront says in the words of interface version 7 what a call of version 6 asks
// for: there is no request document then, but options, and the pod's manifest in the
// working directory, as rkt laid them out.
//
// It reads the pod's directory, and remembers there what `run` was told. It says who is to
// hold what apps share, and which process is to have a terminal, but executes nothing and
// knows no supervisor. What the manifest asks for and an OCI spec cannot say is an error,
// with one exception that is rkt's: limits of memory and CPU are those of the cgroup that
// `run` is called in.
package rktfront

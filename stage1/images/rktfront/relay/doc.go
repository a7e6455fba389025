// Package relay connects the terminal that an entrypoint was called with to a terminal in
// the pod, which the rkt ABI leaves to the stage1. The terminal in the pod controls the
// program there, and relay copies input and output between both.
//
//	caller's terminal (raw) ◄──► relay ◄──► terminal in the pod ◄──► program
//
// It does not make the terminal in the pod: that comes by a console socket, as to stage 0.
package relay

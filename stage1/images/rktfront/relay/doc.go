// Package relay connects the caller's terminal of an entrypoint with a terminal in the
// pod. The rkt ABI leaves that to the stage1. The terminal in the pod is the controlling
// terminal of the program, and relay copies input and output between both.
//
//	caller's terminal (raw) ◄──► relay ◄──► terminal in the pod ◄──► program
//
// It does not make the terminal in the pod. The terminal arrives on a console socket, as
// in stage 0.
package relay

// Package relay puts a terminal of a pod behind the one that an entrypoint was called
// with, as the rkt ABI leaves it to a stage1: the program in the pod has one of
// its own, whose keys control it, and what is typed and written goes through.
//
//	caller's terminal (raw) ◄──► relay ◄──► terminal in the pod ◄──► program
//
// It makes no terminal: that one comes by a console socket, as to stage 0.
package relay

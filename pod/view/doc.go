// Package view shows pods to people and to programs beside the shim: rktctl and its
// collectors of metrics.
//
//	Node: the pods of a data directory
//	  └─► Pod: its state, who serves it, its stage1; its journal
//	        └─► App: its state, times, exit
//
// Everything comes from the pods' files and from /proc, so it is there whether the shim is
// alive or not. The package takes no lock, starts no process and writes nothing. A pod that
// vanishes while it is read is left out; a record that cannot be read is a problem of its
// pod, which is shown with the rest.
//
// States follow from the files and from the processes that are running now:
//
//	preparing ──► running ──► exited ──► deleting
//	    └─────────────┴───── abandoned ─────┘        its shim is dead, and nothing completes the step
//
// The package imports neither package pod nor the shim.
package view

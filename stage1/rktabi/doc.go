// Package rktabi calls the entrypoints of stage1 images of the rkt ABI: the interface
// versions 1 to 6, as rkt 1.30 defined them. docs/stage1-rkt.md lists the features of each.
// The package prepares the pod's view of the machine for these images, moves the data of
// streams, finds the processes of apps and translates exits.
//
//	Open ──► mutable  pods that get apps while they run: versions 5 and 6
//	         oneApp   pods with one app: all versions
//
// Package cmd passes Open to stage1.For. Nothing else imports this package.
package rktabi

// Package rktabi calls the entrypoints of stage1 images of the rkt ABI: the interface
// versions 1 to 6, as rkt 1.30 defined them. docs/stage1-rkt.md says what works with each.
// It makes the machine what these images expect, and
// carries streams, finds processes and translates exits as they demand.
//
//	Open ──► mutable  pods that get apps while they run: versions 5 and 6
//	         oneApp   pods with one app: all versions
//
// Package cmd hands Open over to stage1.For. Nothing else imports this package.
package rktabi

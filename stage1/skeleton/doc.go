// Package skeleton makes the stage1 image that docs/stage1-authors.md writes, out of
// the code blocks of that document. A block whose fence is followed by a language and
// a path is that file:
//
//	```sh rootfs/run
//
// It does not check the image; stage1/conformance does.
package skeleton

// Package fields finds the fields of an OCI document that a set of JSON pointers does not
// cover, and those that no OCI specification has (docs/stage1-abi.md, section 9). It walks a
// document that was read by package pod/spec, from its text, and reads nothing twice.
//
// It does not know stages, images or configurations: its caller says which pointers count.
package fields

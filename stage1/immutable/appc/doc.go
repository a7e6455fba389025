// Package appc translates an OCI runtime spec into the words of the App Container spec, for stage1
// images that read manifests.
//
// A value that appc cannot express is an error that names the field and unwraps to
// errdefs.ErrNotImplemented, unless the field is excused. The package writes no file.
package appc

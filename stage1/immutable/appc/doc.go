// Package appc translates an OCI runtime spec to the App Container spec (appc), for stage1
// images that read manifests.
//
// If appc cannot express a value, the error names the field and unwraps to
// errdefs.ErrNotImplemented, unless the field is excused. The package writes no file.
package appc

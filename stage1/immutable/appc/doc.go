// Package appc says in the words of the App Container spec what an OCI runtime
// spec asks for, for stage1 images that read manifests: rkt's, of the interface
// versions 1 to 6.
//
// What appc has no words for is an error that names the field and unwraps to
// errdefs.ErrNotImplemented, unless the field is excused. It writes no file.
package appc

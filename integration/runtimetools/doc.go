// Package runtimetools pins opencontainers/runtime-tools, whose validation programs test an OCI
// runtime through its command line. runtime-tools has no go.mod, so the versions of its
// dependencies are chosen here: those that its Godeps names, or the oldest that the module
// proxy has after them.
package runtimetools

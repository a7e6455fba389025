// Package runtimetools pins opencontainers/runtime-tools, whose validation programs test an
// OCI runtime through its command line. runtime-tools has no go.mod, so the versions of its
// dependencies are chosen here. They are those in its Godeps. If the module proxy lacks
// such a version, the next later one is used.
package runtimetools

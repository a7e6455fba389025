//go:build !amd64 && !arm64

package seccomp

// local returns a machine without architectures, because there is no table for it. So
// Compile refuses every profile, by an error that names the architecture.
func local() machine { return machine{} }

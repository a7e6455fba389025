//go:build !amd64 && !arm64

package seccomp

// table is empty: nobody has generated one for this machine.
const table = ""

// architectures is empty, which makes Compile refuse every profile by name
// rather than leave an app without the filter that it was promised.
func architectures() []architecture { return nil }

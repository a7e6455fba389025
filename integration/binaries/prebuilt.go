package binaries

import "os"

// PrebuiltVariable names the environment variable that spares a machine the Go
// toolchain: a directory that holds, side by side, all that would be built.
const PrebuiltVariable = "RKT_TEST_PREBUILT"

// prebuilt returns that directory, if there is one.
func prebuilt() (dir string, ok bool) {
	dir = os.Getenv(PrebuiltVariable)
	return dir, dir != ""
}

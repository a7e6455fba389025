package binaries

import "os"

// PrebuiltVariable names an environment variable for machines without a Go toolchain: its value
// is a directory that contains every program that would otherwise be built.
const PrebuiltVariable = "RKT_TEST_PREBUILT"

// prebuilt returns that directory, if there is one.
func prebuilt() (dir string, ok bool) {
	dir = os.Getenv(PrebuiltVariable)
	return dir, dir != ""
}

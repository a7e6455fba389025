package manager

import (
	"os"
	"runtime"
	"runtime/debug"
)

// For rest.Memory: the anonymous memory of a server with its first container, and by how
// much it may grow.
const (
	freshMemory  = 3 << 20
	memoryGrowth = 1 << 20
)

// limitMemory makes the Go runtime collect garbage only when there is more than 4 MB of
// heap, which a server rarely has: rest.Memory releases the garbage of calls soon after
// them. Fewer collections also need less memory.
func limitMemory() {
	debug.SetGCPercent(100)
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2)
	}
}

package manager

import (
	"os"
	"runtime"
	"runtime/debug"
)

// For rest.Memory: the anonymous memory of a server with its first container, and by how
// much it may grow.
const (
	freshMemory  = 2 << 20
	memoryGrowth = 1 << 20
)

const (
	// processors is the number of processors that a server uses. A second one would cost 0.3 MB,
	// because each has memory of its own for every size of objects, and saves no time: most of a
	// server's work are system calls, and these need no processor of the Go runtime. `start` sets
	// it, too, because the runtime would use others before main.
	processors = 1
	// inherited is the number that containerd gives to shims, and that loggers inherit.
	inherited = "2"
)

// limitMemory makes the Go runtime collect garbage only when there is more than 4 MB of
// heap, which a server rarely has: rest.Memory releases the garbage of calls soon after
// them. Fewer collections also need less memory. It limits the processors of servers that were
// started by hand.
func limitMemory() {
	debug.SetGCPercent(100)
	runtime.GOMAXPROCS(processors)
	_ = os.Setenv("GOMAXPROCS", inherited) // it cannot fail
}

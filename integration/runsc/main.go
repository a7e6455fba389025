// Command runsc builds gVisor's runsc, unless it is in the cache, and prints its path.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
)

func main() {
	path, err := binaries.Runsc(context.Background(), os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runsc:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

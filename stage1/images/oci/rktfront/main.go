// Command rktfront serves calls that rkt's stage 0 makes to the entrypoints of this
// stage1. If an entrypoint is called without a request, lib.sh executes this command with
// the path and the arguments of the entrypoint. `rktfront boot-id` prints the id of this boot.
package main

import (
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "boot-id" {
		os.Exit(printBootID())
	}
	if len(os.Args) < 2 || !rktfront.Called(os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: rktfront ENTRYPOINT [ARGUMENT...]: the entrypoints of this stage1 call it")
		os.Exit(1)
	}
	os.Exit(rktfront.Main(os.Args[1], os.Args[2:], false))
}

func printBootID() int {
	id, err := proc.BootID()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(id)
	return 0
}

// Command version6 lets the entrypoints of the stage1 oci be called as interface version 6
// was: with options, a lock, and the pod's manifest in the working directory, but without
// a request document. Such a caller does not inherit what an OCI runtime orphans, and
// learns of an exit from a file. So `run` becomes this program. It stays as the pod's
// supervisor, executes the same entrypoints with the request document that the manifest
// makes, inherits the processes of apps, and records their ends as version 6 has them.
// All other entrypoints hand their call to it.
//
// It knows no OCI runtime: that is the scripts' matter. What a manifest means is package
// older's.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: version6 ENTRYPOINT [ARGUMENT...]: the entrypoints of this stage1 call it")
		os.Exit(exitFatal)
	}
	args := os.Args[2:]
	switch name := os.Args[1]; name {
	case "run":
		os.Exit(runPod(filepath.Dir(os.Args[0]), args))
	case "enter", "stop":
		os.Exit(client.Main(abi.Entrypoint(name), args))
	case "app_add", "app_start", "app_stop", "app_rm":
		os.Exit(client.Main(abi.Entrypoint("app/"+name[len("app_"):]), args))
	default:
		fmt.Fprintf(os.Stderr, "%s is not an entrypoint of interface version 6\n", name)
		os.Exit(exitFatal)
	}
}

// Command kvm is the stage1 whose pods are virtual machines. This static program implements all
// entrypoints; the base name of argv[0] selects one. The
// program agent, which is in the image as well, is the first process of the machines.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "run":
		// Proxies move the data of apps, so they and the supervisor use all processors.
		_ = os.Unsetenv(abi.EnvProcessors)
		runtime.GOMAXPROCS(runtime.NumCPU())
		os.Exit(run())
	case machine.Copier:
		os.Exit(machine.Copy())
	case "features_probe":
		os.Exit(probeFeatures())
	case "enter", "stop", "gc", "network":
		os.Exit(client.Main(abi.Entrypoint(name), os.Args[1:]))
	case "app_add", "app_start", "app_stop", "app_rm", "app_signal", "app_pause", "app_resume", "app_update", "app_stats":
		os.Exit(client.Main(abi.Entrypoint("app/"+name[len("app_"):]), os.Args[1:]))
	default:
		fmt.Fprintf(os.Stderr, "%s is not an entrypoint of the stage1 kvm: it is to be called as one of its links\n", name)
		os.Exit(1)
	}
}

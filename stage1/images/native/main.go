// Command native is the native stage1: one static binary for all of its entrypoints and for
// the first instructions of every app and exec. The base name of argv[0] selects one.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/client"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/supervisor"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/rktfront"
)

// Lock the main goroutine of `init` to the first thread. Only this thread enters the app's
// cgroups, so it must also execute the app's program.
func init() {
	if invocation() == "init" {
		runtime.LockOSThread()
	}
}

func main() {
	if rktfront.Called(os.Args[0]) {
		os.Exit(rktfront.Main(os.Args[0], os.Args[1:], true))
	}
	switch name := invocation(); name {
	case "init":
		container.Init()
	case "run":
		os.Exit(supervisor.Run(nil))
	case "enter", "stop", "gc":
		os.Exit(client.Main(abi.Entrypoint(name), os.Args[1:]))
	case "app_add", "app_start", "app_stop", "app_rm", "app_signal":
		os.Exit(client.Main(abi.Entrypoint("app/"+name[len("app_"):]), os.Args[1:]))
	default:
		fmt.Fprintf(os.Stderr, "%s is not an entrypoint of the native stage1: it is to be called as one of its links\n", name)
		os.Exit(1)
	}
}

func invocation() string { return filepath.Base(os.Args[0]) }

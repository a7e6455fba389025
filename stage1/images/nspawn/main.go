// Command nspawn is the stage1 whose apps run in containers of the host's systemd-nspawn.
// systemd-nspawn makes namespaces and root. The supervisor, the execs, and the steps in a
// container before the exec of the program are native's. This static program implements all
// entrypoints; the base name of argv[0] selects one.
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

// Further names of this program: as initName it is the first process of an exec, as ownName that of an app,
// and as nspawnName it executes systemd-nspawn. systemd-nspawn executes it by its own name, and by no link: the
// data directory may be mounted nosymfollow.
const (
	initName   = "init"
	ownName    = "nspawn"
	nspawnName = "exec-nspawn"
)

// Lock the main goroutine of init to the first thread. Only this thread enters the app's
// cgroups, so it must also execute the app's program.
func init() {
	if name := invocation(); name == initName || name == ownName {
		runtime.LockOSThread()
	}
}

func main() {
	args := os.Args[1:]
	if rktfront.Called(os.Args[0]) {
		os.Exit(rktfront.Main(os.Args[0], args, true))
	}
	switch name := invocation(); name {
	case initName, ownName:
		arrive()
		container.Init()
	case nspawnName:
		os.Exit(execNspawn(args))
	case "run":
		os.Exit(supervisor.Run(&spawner{pod: podOf(args)}))
	case "gc":
		os.Exit(max(client.Main(abi.GC, args), collect(podOf(args))))
	case "enter", "stop":
		os.Exit(client.Main(abi.Entrypoint(name), args))
	case "app_add", "app_start", "app_stop", "app_rm", "app_signal":
		os.Exit(client.Main(abi.Entrypoint("app/"+name[len("app_"):]), args))
	default:
		fmt.Fprintf(os.Stderr, "%s is not an entrypoint of the stage1 nspawn: it is to be called as one of its links\n", name)
		os.Exit(1)
	}
}

func invocation() string { return filepath.Base(os.Args[0]) }

// podOf returns the UUID, which is the last argument of run and gc.
func podOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[len(args)-1]
}

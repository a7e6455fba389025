// Command containerd-shim-rkt-v1 is the program that containerd executes for each pod and each
// container. It answers ordinary calls itself, in a millisecond, and becomes the server program
// for all others (docs/adr/0041-a-thin-front.md).
package main

import (
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/pod/bundlefile"
	"github.com/rkt/containerd-shim-rkt-v1/pod/removal"
)

// server is the name of the server program. The benchmark of a shim that isolates nothing sets
// another one at link time.
var server = early.ServerProgram

func main() {
	front := &early.Front{
		Records: []string{bundlefile.Record, bundlefile.Loggers},
		Await:   removal.Await,
		Server:  func() (string, error) { return early.FindServer(server) },
	}
	os.Exit(front.Main(os.Args))
}

// Command rktctl is the command line of a node's operator. Package cli has its verbs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/cli"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// version is set at link time, by -ldflags "-X main.version=…".
var version string

func main() {
	if launch.Asked(os.Args) { // stage1 verify started this process, as the launcher of an immutable pod
		os.Exit(launch.Main())
	}
	conformance.Program(os.Args, cli.Doors()...) // runs, and does not return, if stage1 verify started this process in a pod
	proc.SealDescriptors()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, &cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Version: version}, os.Args[1:])
	stop()
	os.Exit(code)
}

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newPrepare(e *Env) *cobra.Command {
	cmd := verb("prepare", "prepare [OPTIONS] IMAGE [-- ARGUMENT…]", "make a pod of one app as run does, without starting the app",
		takes(1, 1<<10, "one IMAGE, and arguments after --"))
	return podOfOne(e, cmd, func(context.Context, *local.Pod) error { return nil })
}

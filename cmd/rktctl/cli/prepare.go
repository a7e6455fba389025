package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newPrepare(e *Env) *cobra.Command {
	cmd := verb("prepare", "prepare [OPTIONS] IMAGE [OPTIONS OF ITS APP] [-- ARGUMENT…] [--- IMAGE …]…", "make a pod as run does, without starting its apps", cobra.ArbitraryArgs)
	return podOfApps(e, cmd, func(context.Context, *local.Pod) error { return nil })
}

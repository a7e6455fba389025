package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newRun(e *Env) *cobra.Command {
	cmd := verb("run", "run [OPTIONS] IMAGE [OPTIONS OF ITS APP] [-- ARGUMENT…] [--- IMAGE …]…", "make a pod without containerd, start its apps and print its UUID", cobra.ArbitraryArgs)
	return podOfApps(e, cmd, func(ctx context.Context, p *local.Pod) error {
		err := p.StartAll(ctx)
		if err != nil { // nobody knows the pod
			err = errors.Join(err, p.Remove(context.WithoutCancel(ctx), true))
		}
		return err
	})
}

// podOfApps completes a command that makes a pod with apps.
func podOfApps(e *Env, cmd *cobra.Command, then func(context.Context, *local.Pod) error) *cobra.Command {
	p, apps := newPodFlags(cmd, false), newAppWords(cmd)
	cmd.Flags().BoolVar(&p.config.Injectable, "injectable", false, "let rktctl app add and rm change the apps of the pod")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if p.config.Apps, err = apps.parse(args); err != nil {
			return err
		}
		return p.create(cmd.Context(), e, func(made *local.Pod) error { return then(cmd.Context(), made) })
	}
	return cmd
}

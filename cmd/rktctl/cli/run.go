package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newRun(e *Env) *cobra.Command {
	cmd := verb("run", "run [OPTIONS] IMAGE [-- ARGUMENT…]", "make a pod of one app without containerd, start it and print its UUID",
		takes(1, 1<<10, "one IMAGE, and arguments after --"))
	return podOfOne(e, cmd, func(ctx context.Context, p *local.Pod) error {
		err := p.StartAll(ctx)
		if err != nil { // nobody knows the pod
			err = errors.Join(err, p.Remove(context.WithoutCancel(ctx), true))
		}
		return err
	})
}

// podOfOne completes a command that makes a pod of one app.
func podOfOne(e *Env, cmd *cobra.Command, then func(context.Context, *local.Pod) error) *cobra.Command {
	p, a := newPodFlags(cmd, false), newAppFlags(cmd)
	name := cmd.Flags().String("app", "app", "the `NAME` of the app")
	cmd.Flags().BoolVar(&p.config.Injectable, "injectable", false, "let rktctl app add and rm change the apps of the pod")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.of(cmd, *name, args, 0)
		if err != nil {
			return err
		}
		p.config.Apps = []local.AppConfig{c}
		return p.create(cmd.Context(), e, func(made *local.Pod) error { return then(cmd.Context(), made) })
	}
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func newStop(e *Env) *cobra.Command {
	return forced(e, "stop", "end the apps of a pod whose shim is dead", func(c client) string { return c.stop },
		func(ctx context.Context, p *view.Pod) error {
			var errs []error
			for i := range p.Apps {
				if err := killApp(ctx, &p.Apps[i]); err != nil {
					errs = append(errs, fmt.Errorf("app %s: %w", p.Apps[i].ID, err))
				}
			}
			return errors.Join(errs...)
		})
}

func newRm(e *Env) *cobra.Command {
	return forced(e, "rm", "remove a pod whose shim is dead", func(c client) string { return c.remove },
		func(ctx context.Context, p *view.Pod) error { return removePod(ctx, e, p) })
}

// forced returns a verb that names the client's command, and does its work only if the pod's
// shim is dead and --force is given.
func forced(e *Env, name, summary string, command func(client) string, do func(context.Context, *view.Pod) error) *cobra.Command {
	cmd := verb(name, name+" [--force] POD", summary, takes(1, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	force := cmd.Flags().Bool("force", false, "do it although containerd does not know; the pod's shim has to be dead")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, p, a, err := find(e, args[0])
		if err != nil {
			return err
		}
		if err := ofContainerd(p); err != nil {
			return err
		}
		if own := p.Own(); a == nil && len(own) > 0 {
			a = own[0]
		}
		why := "containerd would not know"
		switch {
		case *force && !p.Served():
			return do(cmd.Context(), p)
		case *force:
			why = "its shim is alive, and --force is only for a dead one"
		}
		return fmt.Errorf("pod %s is containerd's: %s: use %s", p.UUID, why, command(clientOf(p, a)))
	}
	return cmd
}

// killApp kills the processes of an app whose shim is dead. Its supervisor, if it is alive,
// records the exit.
func killApp(ctx context.Context, a *view.App) error {
	if a.Process != nil && a.Process.Alive {
		if err := proc.Signal(a.Process.PID, a.Process.StartTime, syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
			return err
		}
	}
	g := a.Group()
	if g == nil {
		return nil
	}
	ours, err := g.Take(ctx)
	if err != nil || !ours {
		return err
	}
	return errors.Join(g.Kill(ctx), g.Release())
}

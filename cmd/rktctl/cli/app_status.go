package cli

import (
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppStatus(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "status", "status POD --app NAME [OPTIONS]", "show the state of an app, its times and its exit code", onePod)
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		st, err := p.Status(cmd.Context(), *name)
		if err != nil {
			return err
		}
		return out.write(st, func() *table { return localAppsTable([]local.AppStatus{st}, false) })
	}
	return cmd
}

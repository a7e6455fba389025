package cli

import "github.com/spf13/cobra"

func newAppStop(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "stop", "stop POD --app NAME [OPTIONS]", "stop a running app: SIGTERM, and SIGKILL after a period", onePod)
	limit := period(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		return p.Stop(cmd.Context(), *name, *limit)
	}
	return cmd
}

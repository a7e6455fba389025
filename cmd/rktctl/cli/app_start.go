package cli

import "github.com/spf13/cobra"

func newAppStart(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "start", "start POD --app NAME", "start an app that was added", onePod)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		return p.Start(cmd.Context(), *name)
	}
	return cmd
}

package cli

import "github.com/spf13/cobra"

func newRunPrepared(e *Env) *cobra.Command {
	cmd := verb("run-prepared", "run-prepared POD", "start the apps of a pod that prepare has made", onePod)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeLocalPods(e), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		return p.StartAll(cmd.Context())
	}
	return cmd
}

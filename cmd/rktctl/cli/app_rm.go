package cli

import (
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppRm(e *Env) *cobra.Command {
	cmd := verb("app-rm", "rm POD {--app NAME | --pod} [OPTIONS]", "remove an app, or a pod with all its apps", onePod)
	name := cmd.Flags().String("app", "", "the `NAME` of the app")
	pod := cmd.Flags().Bool("pod", false, "remove the pod, with its apps and their logs")
	force := cmd.Flags().Bool("force", false, "with --pod: kill the apps that are running")
	limit := period(cmd)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeLocalPods(e), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *pod == (*name != "") || *force && !*pod {
			return errUsage(cmd, "either --app NAME, or --pod and perhaps --force")
		}
		var p *local.Pod
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		if *pod {
			return p.Remove(cmd.Context(), *force)
		}
		return p.Delete(cmd.Context(), *name, *limit)
	}
	return cmd
}

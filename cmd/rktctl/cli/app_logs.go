package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppLogs(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "logs", "logs POD --app NAME [--follow]", "print what an app has written, also after its removal", onePod)
	follow := followFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		return printLog(cmd.Context(), e.Stdout, p, *name, *follow)
	}
	return cmd
}

// followFlag adds the option --follow.
func followFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("follow", "f", false, "go on until the app has ended, and print what it adds")
}

// printLog prints the log of a local pod's app.
func printLog(ctx context.Context, w io.Writer, p *local.Pod, name string, follow bool) error {
	if follow {
		err := p.Follow(ctx, name, w)
		if ctx.Err() != nil {
			return nil // the user has seen enough
		}
		return err
	}
	paths, err := p.Logs(name)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := printFile(w, path); err != nil {
			return err
		}
	}
	return nil
}

// printFile writes a log file. If the server has replaced it meanwhile, its successor has the
// rest.
func printFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

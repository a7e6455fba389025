package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newAppLogs(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "logs", "logs POD --app NAME", "print what an app has written, also after its removal", onePod)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		paths, err := p.Logs(*name)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := printFile(e.Stdout, path); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
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

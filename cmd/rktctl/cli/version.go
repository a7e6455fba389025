package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
)

func newVersion(e *Env) *cobra.Command {
	cmd := verb("version", "version", "print the version of rktctl", none)
	cmd.RunE = func(*cobra.Command, []string) error {
		_, err := fmt.Fprintf(e.Stdout, "rktctl %s\n", cmp.Or(e.Version, "unknown"))
		return err
	}
	return cmd
}

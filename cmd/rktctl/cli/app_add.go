package cli

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppAdd(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "add", "add POD --app NAME [OPTIONS] ROOTFS [-- COMMAND [ARGUMENT…]]", "add an app to a pod, without starting it",
		takes(2, 1<<10, "one POD, one ROOTFS, and a command after --"))
	var c local.AppConfig
	f := cmd.Flags()
	f.StringArrayVar(&c.Env, "env", nil, "a variable of the app's environment, as `NAME=VALUE`; may be given more than once")
	f.StringVar(&c.Cwd, "cwd", "", "the working `DIRECTORY` of the command")
	volumes := f.StringArray("volume", nil, "a file or directory of the host that the app sees, as `SOURCE:TARGET[:ro]`; may be given more than once")
	f.BoolVarP(&c.Terminal, "terminal", "t", false, "give the command a terminal, whose output is the log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash >= 0 && dash != 2 || dash < 0 && len(args) != 2 {
			return errUsage(cmd, "one POD, one ROOTFS, and a command after --")
		}
		for _, v := range *volumes {
			volume, err := local.ParseVolume(v)
			if err != nil {
				return errUsage(cmd, "%w", err)
			}
			c.Volumes = append(c.Volumes, volume)
		}
		root, err := filepath.Abs(args[1])
		if err != nil {
			return err
		}
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		c.Name, c.Layers, c.Args = *name, []string{root}, args[2:]
		return p.Add(cmd.Context(), c)
	}
	return cmd
}

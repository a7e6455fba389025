package cli

import (
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppAdd(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "add", "add POD --app NAME [OPTIONS] IMAGE [-- ARGUMENT…]", "add an app to a pod, without starting it",
		takes(2, 1<<10, "one POD, one IMAGE, and arguments after --"))
	var c local.AppConfig
	images := imageConfig(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&c.Env, "env", nil, "a variable of the app's environment, as `NAME=VALUE`; may be given more than once")
	f.Func("exec", "a `PROGRAM` instead of the image's, without the image's arguments", func(s string) error { c.Exec = []string{s}; return nil })
	f.StringVar(&c.User, "user", "", "the `USER` of the program, or USER:GROUP, by name or number, instead of the image's")
	f.Int64Var(&c.Memory, "memory", 0, "limit the app's memory to so many `BYTES`")
	f.StringVar(&c.Cwd, "cwd", "", "the working `DIRECTORY` of the program, instead of the image's")
	volumes := f.StringArray("volume", nil, "a file or directory of the host that the app sees, as `SOURCE:TARGET[:ro]`; may be given more than once")
	f.BoolVarP(&c.Terminal, "terminal", "t", false, "give the program a terminal, whose output is the log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash >= 0 && dash != 2 || dash < 0 && len(args) != 2 {
			return errUsage(cmd, "one POD, one IMAGE, and arguments after --")
		}
		for _, v := range *volumes {
			volume, err := local.ParseVolume(v)
			if err != nil {
				return errUsage(cmd, "%w", err)
			}
			c.Volumes = append(c.Volumes, volume)
		}
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		c.Name, c.Image, c.Images, c.Args = *name, args[1], *images, args[2:]
		return p.Add(cmd.Context(), c)
	}
	return cmd
}

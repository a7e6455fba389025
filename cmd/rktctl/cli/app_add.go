package cli

import (
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// appFlags are the options of a command that adds an app to a pod.
type appFlags struct {
	config  local.AppConfig
	images  *appimage.Config
	volumes []string
}

// newAppFlags adds the options of an app to a command.
func newAppFlags(cmd *cobra.Command) *appFlags {
	a := &appFlags{images: imageConfig(cmd)}
	c, f := &a.config, cmd.Flags()
	f.StringArrayVar(&c.Env, "env", nil, "a variable of the app's environment, as `NAME=VALUE`; may be given more than once")
	f.Func("exec", "a `PROGRAM` instead of the image's, without the image's arguments", func(s string) error { c.Exec = []string{s}; return nil })
	f.StringVar(&c.User, "user", "", "the `USER` of the program, or USER:GROUP, by name or number, instead of the image's")
	f.Int64Var(&c.Memory, "memory", 0, "limit the app's memory to so many `BYTES`")
	f.StringVar(&c.Cwd, "cwd", "", "the working `DIRECTORY` of the program, instead of the image's")
	f.StringArrayVar(&a.volumes, "volume", nil, "a file or directory of the host that the app sees, as `SOURCE:TARGET[:ro]`; may be given more than once")
	f.BoolVarP(&c.Stdin, "stdin", "i", false, "give the program an input, to which rktctl attach writes; without it the input is empty")
	f.BoolVarP(&c.Terminal, "terminal", "t", false, "give the program a terminal, whose output is the log")
	return a
}

// request returns the request for an app.
func (a *appFlags) request(cmd *cobra.Command, name, image string, args []string) (local.AppConfig, error) {
	c := a.config
	for _, v := range a.volumes {
		volume, err := local.ParseVolume(v)
		if err != nil {
			return c, errUsage(cmd, "%w", err)
		}
		c.Volumes = append(c.Volumes, volume)
	}
	c.Name, c.Image, c.Images, c.Args = name, image, *a.images, args
	return c, nil
}

func newAppAdd(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "add", "add POD --app NAME [OPTIONS] IMAGE [-- ARGUMENT…]", "add an app to a pod, without starting it",
		takes(2, 1<<10, "one POD, one IMAGE, and arguments after --"))
	a := newAppFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dash := cmd.ArgsLenAtDash(); dash >= 0 && dash != 2 || dash < 0 && len(args) != 2 {
			return errUsage(cmd, "one IMAGE, and arguments after --")
		}
		c, err := a.request(cmd, *name, args[1], args[2:])
		if err != nil {
			return err
		}
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		return p.Add(cmd.Context(), c)
	}
	return cmd
}

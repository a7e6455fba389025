package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/console"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppExec(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "exec", "exec POD --app NAME [OPTIONS] -- COMMAND [ARGUMENT…]", "execute a command in a running app",
		takes(2, 1<<10, "one POD, and a command after --"))
	var c local.ExecConfig
	f := cmd.Flags()
	f.StringArrayVar(&c.Env, "env", nil, "a variable of the command's environment, as `NAME=VALUE`; may be given more than once")
	f.StringVar(&c.Cwd, "cwd", "", "the working `DIRECTORY` of the command")
	f.BoolVarP(&c.Terminal, "terminal", "t", false, "give the command a terminal; rktctl has to be called in one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 1 {
			return errUsage(cmd, "one POD, and a command after --")
		}
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		c.App, c.Args = *name, args[1:]
		c.Stdin, c.Stdout, c.Stderr = e.Stdin, e.Stdout, e.Stderr
		code, err := executed(cmd.Context(), p, c)
		if err == nil && code != 0 {
			err = exitError(code)
		}
		return err
	}
	return cmd
}

// executed executes a command, with the caller's terminal if one is asked for.
func executed(ctx context.Context, p *local.Pod, c local.ExecConfig) (int, error) {
	if !c.Terminal {
		return p.Exec(ctx, c)
	}
	in, _ := c.Stdin.(*os.File)
	if in == nil {
		in = os.Stdin
	}
	return inRawMode(ctx, in, func(ctx context.Context, sizes <-chan local.Size) (int, error) {
		c.Resize = sizes
		return p.Exec(ctx, c)
	})
}

// inRawMode calls f while the terminal is in raw mode. sizes has the terminal's size, and delivers it after
// every change.
func inRawMode(ctx context.Context, in *os.File, f func(ctx context.Context, sizes <-chan local.Size) (int, error)) (int, error) {
	con, err := console.ConsoleFromFile(in)
	if err != nil {
		return 0, err
	}
	if err := con.SetRaw(); err != nil {
		return 0, err
	}
	defer con.Reset()
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	defer signal.Stop(changes)
	sizes := make(chan local.Size, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pass := func() {
		size, err := con.Size()
		if err != nil {
			return
		}
		select {
		case sizes <- local.Size{Width: uint32(size.Width), Height: uint32(size.Height)}:
		case <-ctx.Done():
		}
	}
	pass()
	go func() {
		for {
			select {
			case <-changes:
				pass()
			case <-ctx.Done():
				return
			}
		}
	}()
	return f(ctx, sizes)
}

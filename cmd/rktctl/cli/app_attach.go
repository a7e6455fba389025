package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppAttach(e *Env) *cobra.Command {
	cmd, name := appVerb(e, "attach", "attach POD --app NAME [--end-input]", "connect to the streams of a running app", onePod)
	end := endInputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		return attach(cmd.Context(), e, p, *name, *end)
	}
	return cmd
}

// endInputFlag adds the option --end-input.
func endInputFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("end-input", false, "end the app's input when the input of rktctl ends")
}

// attach connects the caller's streams with a running app of a local pod. It returns when the app has
// ended, with its exit code, or when the user leaves it.
func attach(ctx context.Context, e *Env, p *local.Pod, name string, endInput bool) error {
	a, err := p.Attach(ctx, name)
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	c := local.AttachConfig{Stdin: e.Stdin, Stdout: e.Stdout, EndInput: endInput}
	run := func(ctx context.Context, sizes <-chan local.Size) (int, error) {
		c.Resize = sizes
		return a.Run(ctx, c)
	}
	var code int
	if in := terminalOf(e); in != nil && a.Terminal && a.Input() {
		c.Stdin = &leavingInput{from: in, leave: leave}
		code, err = inRawMode(ctx, in, run)
	} else {
		code, err = run(ctx, nil)
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // the app runs on
		return nil
	case err == nil && code != 0:
		return exitError(code)
	}
	return err
}

// Keys with which a user leaves an app that has a terminal: Ctrl-P, and then Ctrl-Q.
const (
	leavingKey1 = 'P' & 0x1f
	leavingKey2 = 'Q' & 0x1f
)

// leavingInput is a user's input. It ends at the two keys, with a call of leave.
type leavingInput struct {
	from  io.Reader
	leave func()
	held  bool // the first key was read, and not passed on
}

// Read reads at most len(p)-1 bytes, because a key that was held comes before them.
func (l *leavingInput) Read(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, io.ErrShortBuffer
	}
	read := make([]byte, len(p)-1)
	for {
		n, err := l.from.Read(read)
		got := p[:0]
		for _, b := range read[:n] {
			if l.held && b == leavingKey2 {
				l.leave()
				return len(got), io.EOF
			}
			if l.held {
				got = append(got, leavingKey1)
			}
			if l.held = b == leavingKey1; !l.held {
				got = append(got, b)
			}
		}
		if l.held && err != nil {
			got, l.held = append(got, leavingKey1), false
		}
		if len(got) > 0 || err != nil {
			return len(got), err
		}
	}
}

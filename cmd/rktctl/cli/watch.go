package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// watch is the option --watch of a verb that shows pods.
type watch bool

func watchFlag(cmd *cobra.Command) *watch {
	w := new(watch)
	cmd.Flags().BoolVarP((*bool)(w), "watch", "w", false, "show it again whenever something has changed, until it is interrupted")
	return w
}

// errEnd is returned to readings by a verb that has seen enough.
var errEnd = errors.New("enough")

// readings calls show with all pods: once, or, with --watch, after every change until ctx
// ends.
func (w *watch) readings(ctx context.Context, e *Env, show func(n *view.Node, list []*view.Pod, first bool) error) error {
	if !*w {
		n, list, err := pods(e)
		if err != nil {
			return err
		}
		return show(n, list, true)
	}
	n, err := openNode(e)
	if err != nil {
		return err
	}
	watcher, err := n.Watch()
	if err != nil {
		return err
	}
	defer watcher.Close()
	for first := true; ; first = false {
		list, err := watcher.Next(ctx)
		if ctx.Err() != nil {
			return nil // the user has seen enough
		}
		if err != nil {
			return readable(err)
		}
		if err := show(n, list, first); err != nil {
			if errors.Is(err, errEnd) {
				return nil
			}
			return err
		}
	}
}

// each is readings for a verb that shows the same anew each time.
func (w *watch) each(ctx context.Context, out *output, show func(list []*view.Pod) error) error {
	return w.readings(ctx, out.env, func(_ *view.Node, list []*view.Pod, first bool) error {
		if *w {
			out.again(first)
		}
		return show(list)
	})
}

// again separates an output from the one before it. On a terminal it replaces that.
func (o *output) again(first bool) {
	switch {
	case o.isText() && isTerminal(o.env.Stdout):
		fmt.Fprint(o.env.Stdout, "\x1b[H\x1b[2J")
	case first:
	case o.isText():
		fmt.Fprintln(o.env.Stdout)
	case o.format == formatYAML:
		fmt.Fprintln(o.env.Stdout, "---")
	}
}

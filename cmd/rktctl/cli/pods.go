package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// openNode opens the node's data directory.
func openNode(e *Env) (*view.Node, error) { return view.Open(dataDir(e)) }

// pods returns all pods of the node.
func pods(e *Env) (*view.Node, []*view.Pod, error) {
	n, err := openNode(e)
	if err != nil {
		return nil, nil, err
	}
	list, err := n.Pods()
	return n, list, readable(err)
}

// readable adds to an error of permissions that pods belong to root.
func readable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: only root may read pods", err)
	}
	return err
}

// find returns the pod, and perhaps the app, that a word of the command line names.
func find(e *Env, word string) (*view.Node, *view.Pod, *view.App, error) {
	n, err := openNode(e)
	if err != nil {
		return nil, nil, nil, err
	}
	p, a, err := n.Find(word)
	return n, p, a, readable(err)
}

// completePods completes the UUIDs of pods and the ids of their apps.
func completePods(e *Env, most int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		_, list, err := pods(e)
		if err != nil || len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []cobra.Completion
		add := func(word, what string) {
			if word != "" && strings.HasPrefix(word, begun) {
				words = append(words, cobra.CompletionWithDesc(word, what))
			}
		}
		for _, p := range list {
			add(p.UUID, fmt.Sprintf("%s, %s", p.Sandbox, p.State))
			for _, a := range p.Apps {
				add(a.ID, fmt.Sprintf("%s, in pod %.8s", a.State, p.UUID))
			}
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// podState returns the state of a pod with a colour.
func podState(p *view.Pod) cell {
	c := cell{text: string(p.State)}
	switch {
	case p.State == view.PodRunning && p.Served():
		c.colour = green
	case p.State == view.PodRunning || p.State == view.PodExited && !p.Served():
		c.text, c.colour = c.text+", no shim", yellow
	case p.State == view.PodAbandoned:
		c.colour = red
	}
	if len(p.Problems) > 0 {
		c.text, c.colour = c.text+", damaged", red
	}
	return c
}

// appState returns the state of an app with a colour.
func appState(a *view.App) cell {
	c := cell{text: string(a.State)}
	switch a.State {
	case view.AppRunning:
		c.colour = green
	case view.AppPaused:
		c.colour = yellow
	case view.AppAbandoned:
		c.colour = red
	case view.AppExited:
		c.text = "exited, code unknown"
		c.colour = yellow
		if a.Exit != nil {
			c.text, c.colour = "exited "+strconv.Itoa(a.Exit.Code), ""
		}
	}
	return c
}

// age returns the time since t in its largest unit: 3m, 2h, 5d.
func age(t time.Time) string {
	if t.IsZero() {
		return "?"
	}
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// moment returns a time in RFC 3339, with milliseconds.
func moment(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.Local().Format("2006-01-02T15:04:05.000Z07:00")
}

// size returns a number of bytes in the largest binary unit.
func size(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}

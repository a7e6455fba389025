package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

func newEvents(e *Env) *cobra.Command {
	cmd := verb("events", "events [OPTIONS] [POD]", "show the calls of entrypoints and the changes of states of pods", takes(0, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	out := newOutput(e, cmd)
	watch := watchFlag(cmd)
	cmd.Flags().Lookup("watch").Usage = "show what happens from now on as well, until it is interrupted"
	cmd.Flags().BoolVarP((*bool)(watch), "follow", "f", false, "the same as --watch")
	later := cmd.Flags().Bool("new", false, "with --watch, leave out what happened before")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *later && !bool(*watch) {
			return errUsage(cmd, "without --watch nothing new happens")
		}
		uuid := ""
		if len(args) > 0 {
			_, p, _, err := find(e, args[0])
			if err != nil {
				return err
			}
			uuid = p.UUID
		}
		var events *view.Events
		defer func() {
			if events != nil {
				events.Close()
			}
		}()
		return watch.readings(cmd.Context(), e, func(n *view.Node, list []*view.Pod, first bool) error {
			if first {
				events = n.Events()
			}
			found, err := events.Update(list)
			if err != nil {
				return err
			}
			for _, x := range found {
				if uuid != "" && x.Pod != uuid || first && *later {
					continue
				}
				if err := out.event(&x); err != nil {
					return err
				}
				if x.Pod == uuid && x.App == "" && x.State == view.StateRemoved {
					return errEnd
				}
			}
			return nil
		})
	}
	return cmd
}

// event writes one event: a line of text or JSON, or a document of YAML.
func (o *output) event(x *view.Event) error {
	switch o.format {
	case formatText:
		_, err := fmt.Fprintln(o.env.Stdout, eventLine(x, o.env.coloured()))
		return err
	case formatJSON:
		return json.NewEncoder(o.env.Stdout).Encode(x)
	}
	fmt.Fprintln(o.env.Stdout, "---")
	return o.writeDocument(x)
}

// eventLine returns a line for people.
func eventLine(x *view.Event, coloured bool) string {
	what, detail, failed := x.State, "", false
	switch c := x.Call; {
	case c != nil && len(c.Unknown) > 0:
		what, detail = "ignored", "fields that no specification has: "+strings.Join(c.Unknown, " ")
	case c != nil && c.Debug != nil:
		what, detail = "debug", debugText(c)
	case c != nil:
		what, failed = string(c.Entrypoint), c.Code != 0
		detail = callDetail(c)
	case x.Exit != nil:
		detail = fmt.Sprintf("code %d", x.Exit.Code)
		if x.Exit.Signal != 0 {
			detail += fmt.Sprintf(", by signal %d", x.Exit.Signal)
		}
	}
	whose := x.App
	if x.Exec != "" {
		whose += ", exec " + x.Exec
	}
	line := abi.Printable(strings.Join(strings.Fields(fmt.Sprintf("%s %s", what, detail)), " "))
	if coloured && failed {
		line = string(red) + line + "\x1b[0m"
	}
	if whose != "" {
		line = abi.Printable(whose) + ": " + line
	}
	return fmt.Sprintf("%s  %.8s  %s", moment(x.Time), x.Pod, line)
}

// debugText says who debugs an app, or that it is over.
func debugText(c *journal.Entry) string {
	who := c.Debug.Login
	if c.Debug.UID != noLogin {
		who += fmt.Sprintf(" (user %d)", c.Debug.UID)
	}
	text := fmt.Sprintf("by %s, process %d, with the image %s %s", who, c.Debug.PID, c.Debug.Image, c.Debug.Digest)
	if c.State == "" {
		text += fmt.Sprintf(": ended after %.1f s, code %d", c.Millis/1000, c.Code)
	}
	return text
}

// callDetail says how a call ended.
func callDetail(c *journal.Entry) string {
	detail := fmt.Sprintf("%.1f ms", c.Millis)
	switch {
	case c.State == journal.Ready:
		detail = "ready after " + detail
	case c.Code != 0:
		detail = fmt.Sprintf("failed with code %d after %s", c.Code, detail)
	default:
		detail = "done after " + detail
	}
	if c.Error != "" {
		detail += ": " + c.Error
	}
	return detail
}

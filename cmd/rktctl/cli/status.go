package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

func newStatus(e *Env) *cobra.Command {
	cmd := verb("status", "status [OPTIONS] POD", "show the state of a pod and of its apps", takes(1, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	out := newOutput(e, cmd)
	watch := watchFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return watch.each(cmd.Context(), out, func(list []*view.Pod) error {
			p, _, err := view.Find(list, args[0])
			if err != nil {
				return err
			}
			if !out.isText() {
				return out.writeDocument(p)
			}
			return writeStatus(e, p)
		})
	}
	return cmd
}

func writeStatus(e *Env, p *view.Pod) error {
	var b strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, abi.Printable(fmt.Sprintf(format, args...)))
	}
	field("pod", "%s", p.UUID)
	field("state", "%s", podState(p).text)
	field("created", "%s (%s ago)", moment(p.Created), age(p.Created))
	if p.Sandbox != "" {
		field("id", "%s, in namespace %s of %s", p.Sandbox, p.Namespace, cmp.Or(p.Daemon, "an unknown containerd"))
	}
	field("stage1", "%s %s", cmp.Or(p.Stage1.Name, "unknown"), p.Stage1.Digest)
	if p.Stage1.By != "" {
		field("chosen by", "%s", p.Stage1.By)
	}
	if len(p.Stage1.Excused) > 0 {
		field("may ignore", "%s", strings.Join(p.Stage1.Excused, " "))
	}
	field("shim", "%s", processText(p.Shim))
	field("supervisor", "%s", processText(p.Supervisor))
	if p.Holder != nil {
		field("holder", "%s", processText(p.Holder))
	}
	field("directory", "%s", p.Dir)
	for _, a := range p.Apps {
		if len(a.Unknown) > 0 {
			field("ignored", "of %s: %s", cmp.Or(a.ID, a.Name), strings.Join(a.Unknown, ", "))
		}
	}
	for _, problem := range p.Problems {
		field("problem", "%s", problem)
	}
	if _, err := io.WriteString(e.Stdout, b.String()); err != nil || len(p.Apps) == 0 {
		return err
	}
	fmt.Fprintln(e.Stdout)
	return appsTable(p).write(e)
}

func appsTable(p *view.Pod) *table {
	t := &table{columns: []column{{"APP", 12}, {"STATE", 0}, {"PID", 0}, {"CREATED", 10}, {"STARTED", 10}, {"ENDED", 10}}}
	for _, a := range p.Apps {
		pid, ended := "-", "-"
		if a.Process != nil {
			pid = fmt.Sprint(a.Process.PID)
		}
		if a.Exit != nil {
			ended = moment(a.Exit.Time)
		}
		started := "-"
		if !a.Started.IsZero() {
			started = moment(a.Started)
		}
		name := cmp.Or(a.ID, a.Name)
		if a.Debugs != "" {
			name += ", debugs " + a.Debugs
		}
		t.add(name, appState(&a), pid, moment(a.Created), started, ended)
	}
	return t
}

func processText(p *view.Process) string {
	switch {
	case p == nil:
		return "none is on record"
	case p.Alive:
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("process %d, which has ended", p.PID)
}

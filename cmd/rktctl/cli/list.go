package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// selection selects pods by the options of list.
type selection struct {
	namespace, state, stage1 string
}

func (s *selection) has(p *view.Pod) bool {
	return (s.namespace == "" || p.Namespace == s.namespace) &&
		(s.state == "" || string(p.State) == s.state) &&
		(s.stage1 == "" || p.Stage1.Name == s.stage1 || strings.HasPrefix(p.Stage1.Digest, s.stage1) || strings.HasPrefix(p.Stage1.Digest, "sha512-"+s.stage1))
}

func newList(e *Env) *cobra.Command {
	cmd := verb("list", "list [OPTIONS]", "list the pods of this node", none)
	cmd.Aliases = []string{"ls"}
	s := &selection{}
	cmd.Flags().StringVar(&s.namespace, "namespace", "", "only pods of containerd's namespace `NAME`")
	cmd.Flags().StringVar(&s.state, "state", "", "only pods in the state `STATE`")
	cmd.Flags().StringVar(&s.stage1, "stage1", "", "only pods with the stage1 `NAME`, a name or the beginning of a digest")
	states := []string{string(view.PodPreparing), string(view.PodPrepared), string(view.PodRunning), string(view.PodExited), string(view.PodDeleting), string(view.PodAbandoned)}
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	out := newOutput(e, cmd)
	watch := watchFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.state != "" && !slices.Contains(states, s.state) {
			return errUsage(cmd, "no pod has the state %q; the states are %s", s.state, strings.Join(states, ", "))
		}
		return watch.each(cmd.Context(), out, func(list []*view.Pod) error {
			list = slices.DeleteFunc(list, func(p *view.Pod) bool { return !s.has(p) })
			return out.write(list, func() *table { return podsTable(list) })
		})
	}
	return cmd
}

func podsTable(list []*view.Pod) *table {
	t := &table{columns: []column{{"UUID", 8}, {"STATE", 0}, {"APPS", 0}, {"STAGE1", 0}, {"NAMESPACE", 6}, {"ID", 12}, {"AGE", 0}}}
	for _, p := range list {
		running := 0
		for _, a := range p.Own() {
			if a.State == view.AppRunning || a.State == view.AppPaused {
				running++
			}
		}
		t.add(p.UUID, podState(p), fmt.Sprintf("%d/%d", running, len(p.Own())), cmp.Or(p.Stage1.Name, "?"), p.Namespace, p.Sandbox, age(p.Created))
	}
	return t
}

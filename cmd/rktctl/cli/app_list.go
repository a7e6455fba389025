package cli

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// listedPod is a local pod with its apps.
type listedPod struct {
	local.PodStatus
	Apps []local.AppStatus `json:"apps"`
}

func newAppList(e *Env) *cobra.Command {
	cmd := verb("app-list", "list [POD] [OPTIONS]", "list the apps of a pod, or all pods without containerd", takes(0, 1, "one POD or none"))
	out := newOutput(e, cmd)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeLocalPods(e), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return listLocalPods(cmd.Context(), e, out)
		}
		p, err := localPod(e, args[0])
		if err != nil {
			return err
		}
		apps, err := p.List(cmd.Context())
		if err != nil {
			return err
		}
		return out.write(append([]local.AppStatus{}, apps...), func() *table { return localAppsTable(apps, false) })
	}
	return cmd
}

func listLocalPods(ctx context.Context, e *Env, out *output) error {
	s, err := localStore(e)
	if err != nil {
		return err
	}
	uuids, err := s.UUIDs()
	if err != nil {
		return err
	}
	pods := []listedPod{}
	for _, uuid := range uuids {
		p, err := s.Open(uuid)
		var apps []local.AppStatus
		if err == nil {
			apps, err = p.List(ctx)
		}
		if errdefs.IsNotFound(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		pods = append(pods, listedPod{p.PodStatus(ctx), append([]local.AppStatus{}, apps...)})
	}
	return out.write(pods, func() *table { return localPodsTable(pods) })
}

// localPodsTable has a line for each app, and one for a pod without apps.
func localPodsTable(pods []listedPod) *table {
	t := &table{columns: []column{{"POD", 8}, {"STATE", 0}, {"APP", 8}, {"STATE", 0}, {"CREATED", 0}}}
	for _, p := range pods {
		state := cell{text: string(p.State), colour: yellow}
		if p.State == local.PodRunning {
			state.colour = green
		}
		if len(p.Apps) == 0 {
			t.add(p.UUID, state, "-", "-", shown(p.CreatedAt))
		}
		for _, a := range p.Apps {
			t.add(p.UUID, state, a.Name, string(a.State), shown(a.CreatedAt))
		}
	}
	return t
}

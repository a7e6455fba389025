package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
	"github.com/rkt/containerd-shim-rkt-v1/config"
)

// newApp returns the commands of local pods.
func newApp(e *Env) *cobra.Command {
	cmd := group("app", "pods without containerd, and their apps")
	cmd.Long, cmd.Example = page("app")
	cmd.AddCommand(
		newAppAdd(e),
		newAppAttach(e),
		newAppExec(e),
		newAppList(e),
		newAppLogs(e),
		newAppRm(e),
		newAppSandbox(e),
		newAppStart(e),
		newAppStatus(e),
		newAppStop(e),
	)
	return cmd
}

// localStore returns the local pods of this node.
func localStore(e *Env) (*local.Store, error) {
	dir, err := filepath.Abs(cmp.Or(e.Getenv(config.DataDirVariable), config.DataDir))
	if err != nil {
		return nil, err
	}
	c, err := config.Open(e.Getenv)
	if err != nil {
		return nil, err
	}
	s := &local.Store{
		DataDir:      dir,
		CgroupParent: cmp.Or(c.Local.CgroupParent, local.DefaultCgroupParent),
		Network:      cmp.Or(c.Local.Network, local.NetworkNone),
		CNIConfig:    cmp.Or(c.Local.CNIConfig, local.DefaultCNIConfig),
		CNIPlugins:   c.Local.CNIPlugins,
	}
	if len(s.CNIPlugins) == 0 {
		s.CNIPlugins = []string{local.DefaultCNIPlugins}
	}
	for _, name := range []string{"PATH", config.DataDirVariable, config.FileVariable} {
		if value := e.Getenv(name); value != "" {
			s.Env = append(s.Env, name+"="+value)
		}
	}
	return s, nil
}

// localPod opens the local pod that a command line names.
func localPod(e *Env, prefix string) (*local.Pod, error) {
	s, err := localStore(e)
	if err != nil {
		return nil, err
	}
	return s.Open(prefix)
}

// appVerb returns a command on one app of a pod: POD --app NAME.
func appVerb(e *Env, name, use, summary string, args cobra.PositionalArgs) (*cobra.Command, *string) {
	cmd := verb("app-"+name, use, summary, args)
	app := cmd.Flags().String("app", "", "the `NAME` of the app")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *app == "" {
			return errUsage(cmd, "--app NAME says which app")
		}
		return nil
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return completeLocalPods(e), cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc("app", func(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var names []cobra.Completion
		if len(given) > 0 {
			if p, err := localPod(e, given[0]); err == nil {
				names, _ = p.Names()
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd, app
}

// completeLocalPods lists the UUIDs of local pods.
func completeLocalPods(e *Env) []cobra.Completion {
	s, err := localStore(e)
	if err != nil {
		return nil
	}
	uuids, _ := s.UUIDs()
	return uuids
}

// onePod is a command with one pod.
var onePod = takes(1, 1, "one POD")

// period adds the option --period.
func period(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("period", local.DefaultPeriod, "how long the app may take to end after SIGTERM, before it gets SIGKILL: a `TIME` such as 30s")
}

// shown returns a time as people read it, in the local time zone.
func shown(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// localAppsTable is the table of apps of one or more pods.
func localAppsTable(apps []local.AppStatus, pods bool) *table {
	t := &table{columns: []column{{"APP", 8}, {"STATE", 0}, {"EXIT", 0}, {"CREATED", 0}, {"STARTED", 0}, {"FINISHED", 0}}}
	if pods {
		t.columns = append([]column{{"POD", 8}}, t.columns...)
	}
	for _, a := range apps {
		state := cell{text: string(a.State)}
		exit := cell{text: "-"}
		switch a.State {
		case local.Running:
			state.colour = green
		case local.Unknown:
			state.colour = red
		case local.Exited:
			state.colour = dim
		}
		if a.ExitCode != nil {
			exit.text = fmt.Sprint(*a.ExitCode)
			if *a.ExitCode != 0 {
				exit.colour = yellow
			}
		}
		row := []any{a.Name, state, exit, shown(a.CreatedAt), shown(a.StartedAt), shown(a.FinishedAt)}
		if pods {
			row = append([]any{a.Pod}, row...)
		}
		t.add(row...)
	}
	return t
}

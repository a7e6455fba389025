package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

func newAppSandbox(e *Env) *cobra.Command {
	cmd := verb("app-sandbox", "sandbox [OPTIONS]", "make an empty pod and print its UUID", none)
	c := local.PodConfig{Injectable: true}
	f := cmd.Flags()
	f.StringVar(&c.Stage1, "stage1", "", "the `NAME` of the stage1, instead of the configuration's")
	f.StringVar(&c.Network, "network", "", "the `NETWORK` of the pod, instead of the configuration's: none, which has only a loopback device, host, or the name of a network of CNI")
	f.StringVar(&c.Hostname, "hostname", "", "the pod's `NAME`, instead of rkt-UUID")
	parent := f.String("cgroup-parent", "", "the cgroup below which the pod gets its own, instead of the configuration's: an absolute `PATH` below the roots of the hierarchies")
	_ = cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]cobra.Completion{local.NetworkNone, local.NetworkHost}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := localStore(e)
		if err != nil {
			return err
		}
		if *parent != "" {
			s.CgroupParent = *parent
		}
		p, err := s.Create(cmd.Context(), c)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.Stdout, p.UUID())
		return err
	}
	return cmd
}

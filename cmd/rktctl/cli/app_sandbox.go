package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// podFlags are the options of a command that makes a pod.
type podFlags struct {
	config     local.PodConfig
	parent     string
	allowEmpty bool
}

// newPodFlags adds the options of a pod to a command.
func newPodFlags(cmd *cobra.Command, allowEmpty bool) *podFlags {
	p := &podFlags{}
	f := cmd.Flags()
	f.StringVar(&p.config.Stage1, "stage1", "", "the `NAME` of the stage1, instead of the configuration's")
	f.StringVar(&p.config.Network, "network", "", "the `NETWORK` of the pod, instead of the configuration's: none, which has only a loopback device, host, or the name of a network of CNI")
	f.StringVar(&p.config.Hostname, "hostname", "", "the pod's `NAME`, instead of rkt-UUID")
	f.StringVar(&p.parent, "cgroup-parent", "", "the cgroup below which the pod gets its own, instead of the configuration's: an absolute `PATH` below the roots of the hierarchies")
	f.BoolVar(&p.allowEmpty, "allow-empty", allowEmpty, fmt.Sprintf("let the pod go on when all its apps have ended (--allow-empty=%t is the default)", allowEmpty))
	_ = cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]cobra.Completion{local.NetworkNone, local.NetworkHost}, cobra.ShellCompDirectiveNoFileComp))
	return p
}

// create makes the pod and prints its UUID when it is as then wants it.
func (p *podFlags) create(ctx context.Context, e *Env, then func(*local.Pod) error) error {
	s, err := localStore(e)
	if err != nil {
		return err
	}
	if p.parent != "" {
		s.CgroupParent = p.parent
	}
	p.config.EndsWithApps = !p.allowEmpty
	made, err := s.Create(ctx, p.config)
	if err != nil {
		return err
	}
	if err := then(made); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.Stdout, made.UUID())
	return err
}

func newAppSandbox(e *Env) *cobra.Command {
	cmd := verb("app-sandbox", "sandbox [OPTIONS]", "make an empty pod and print its UUID", none)
	p := newPodFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p.config.Injectable = true
		return p.create(cmd.Context(), e, func(*local.Pod) error { return nil })
	}
	return cmd
}

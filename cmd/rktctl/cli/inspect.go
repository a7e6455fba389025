package cli

import (
	"encoding/json"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// inspected is everything that is known of a pod.
type inspected struct {
	*view.Pod
	Manifest json.RawMessage `json:"manifest,omitempty"`
	Journal  []journal.Entry `json:"journal"`
}

func newInspect(e *Env) *cobra.Command {
	cmd := verb("inspect", "inspect [OPTIONS] POD", "print everything that is known of a pod, as JSON", takes(1, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	out := newOutput(e, cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		n, p, _, err := find(e, args[0])
		if err != nil {
			return err
		}
		all := inspected{Pod: p}
		if all.Journal, err = n.Journal(p.UUID); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		if all.Journal == nil {
			all.Journal = []journal.Entry{}
		}
		manifest, err := n.Manifest(p.UUID, nil)
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		if json.Valid(manifest) {
			all.Manifest = manifest
		}
		return out.writeDocument(all)
	}
	return cmd
}

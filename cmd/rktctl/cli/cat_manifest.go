package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

func newCatManifest(e *Env) *cobra.Command {
	cmd := verb("cat-manifest", "cat-manifest [OPTIONS] POD", "print the manifest of a pod, or of an app's image", takes(1, 1, "one POD"))
	cmd.ValidArgsFunction = completePods(e, 1)
	image := cmd.Flags().Bool("image", false, "print the image manifest of the app that POD names, instead of the pod's manifest")
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, p, a, err := find(e, args[0])
		if err != nil {
			return err
		}
		var of *view.App
		if *image {
			if of, err = oneApp(cmd, p, a); err != nil {
				return err
			}
		}
		text, err := n.Manifest(p.UUID, of)
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			return fmt.Errorf("the manifest of pod %s is damaged", p.UUID)
		}
		return out.writeDocument(json.RawMessage(text))
	}
	return cmd
}

// oneApp returns the app that the command line names, or else the pod's only app.
func oneApp(cmd *cobra.Command, p *view.Pod, a *view.App) (*view.App, error) {
	if a != nil {
		return a, nil
	}
	own := p.Own()
	switch len(own) {
	case 0:
		return nil, fmt.Errorf("pod %s has no app", p.UUID)
	case 1:
		return own[0], nil
	}
	var ids []string
	for _, a := range own {
		ids = append(ids, a.ID)
	}
	slices.Sort(ids)
	return nil, errUsage(cmd, "pod %s has %d apps, %s: name one", p.UUID, len(own), strings.Join(ids, ", "))
}

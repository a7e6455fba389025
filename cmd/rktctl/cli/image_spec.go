package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/containerd"
)

func newImageSpec(e *Env) *cobra.Command {
	cmd := verb("image-spec", "spec [OPTIONS] IMAGE [ARGUMENT...]", "print the OCI spec that an app of an image has",
		takes(1, 1<<20, "one IMAGE, and the arguments of its program"))
	config := imageConfig(cmd)
	id := cmd.Flags().String("id", "app", "the `ID` of the app")
	out := newOutput(e, cmd)
	cmd.Flags().SetInterspersed(false) // options after IMAGE are arguments of its program
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		config.DataDir = dataDir(e)
		return writeSpec(cmd.Context(), out, *config, *id, args)
	}
	return cmd
}

// imageConfig adds the options that say which containerd has the images.
func imageConfig(cmd *cobra.Command) *appimage.Config {
	c := &appimage.Config{}
	cmd.Flags().StringVar(&c.Address, "address", containerd.DefaultAddress, "the `PATH` of containerd's socket")
	cmd.Flags().StringVar(&c.Namespace, "namespace", containerd.DefaultNamespace, "the `NAME` of containerd's namespace")
	return c
}

func writeSpec(ctx context.Context, out *output, c appimage.Config, id string, args []string) (err error) {
	i, err := appimage.Open(ctx, args[0], c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	s, err := i.Spec(ctx, appimage.SpecConfig{ID: id, Args: args[1:]})
	if err != nil {
		return err
	}
	return out.writeDocument(s)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
)

func newImageImport(e *Env) *cobra.Command {
	cmd := verb("image-import", "import [OPTIONS] APP.aci OUTPUT", "make an OCI image of an ACI, which containerd can import", takes(2, 2, "one APP.aci and one OUTPUT"))
	name := cmd.Flags().String("name", "", "the `NAME` of the image, instead of the ACI's name and version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return importImage(cmd.Context(), e, args[0], args[1], *name)
	}
	return cmd
}

// importImage writes the OCI image of an ACI to an archive, to the standard output or to a
// layout.
func importImage(ctx context.Context, e *Env, file, to, name string) error {
	var c appimage.Converted
	var err error
	switch {
	case to == "-" && isTerminal(e.Stdout):
		return errors.New("an archive is not written to a terminal: name a file, or use a pipe")
	case to == "-":
		c, err = appimage.ConvertArchive(ctx, file, name, e.Stdout)
	case strings.HasSuffix(to, "/"):
		c, err = appimage.ConvertLayout(ctx, file, name, strings.TrimRight(to, "/"))
	default:
		c, err = convertToFile(ctx, file, name, to)
	}
	if err != nil {
		return err
	}
	for _, lost := range c.Lost {
		fmt.Fprintf(e.Stderr, "rktctl: lost, because an OCI image cannot express it: %s\n", lost)
	}
	out := e.Stdout
	if to == "-" {
		out = io.Discard
	}
	_, err = fmt.Fprintf(out, "%s %s\n", c.Name, c.Digest)
	return err
}

// convertToFile writes a new file, or none.
func convertToFile(ctx context.Context, file, name, to string) (c appimage.Converted, err error) {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return c, err
	}
	c, err = appimage.ConvertArchive(ctx, file, name, f)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(to))
	}
	return c, err
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/containerd"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func newStage1Import(e *Env) *cobra.Command {
	cmd := verb("stage1-import", "import [OPTIONS] SOURCE", "bring a stage1 image into the tree store, by its digest", takes(1, 1, "one SOURCE"))
	address := cmd.Flags().String("address", containerd.DefaultAddress, "the `PATH` of containerd's socket")
	namespace := cmd.Flags().String("namespace", containerd.DefaultNamespace, "the `NAME` of containerd's namespace")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return importStage1(cmd.Context(), e, args[0], *address, *namespace)
	}
	return cmd
}

func importStage1(ctx context.Context, e *Env, source, address, namespace string) error {
	c, err := config.Open(e.Getenv)
	if err != nil {
		return err
	}
	store, err := image.OpenStore(dataDir(e))
	if err != nil {
		return err
	}
	i, err := importFrom(ctx, store.With(rulesOf(c)), source, address, namespace)
	if err != nil {
		return meantPath(source, err)
	}
	if err := i.Close(); err != nil {
		return err
	}
	if signer := store.Signer(i); signer != "" {
		fmt.Fprintf(e.Stdout, "# signed by %s\n", signer)
	}
	_, err = fmt.Fprintf(e.Stdout, "[stage1.%s]\ndigest = %q\n", tableName(i.Name()), i.Digest())
	return err
}

// importFrom imports an image from a path or from containerd's store.
func importFrom(ctx context.Context, store *image.Store, source, address, namespace string) (i *image.Image, err error) {
	if isPath(source) {
		return store.ImportPath(ctx, source)
	}
	client, err := containerd.Dial(address, namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	top, err := client.Image(ctx, source)
	if err != nil {
		return nil, err
	}
	return store.Import(ctx, client, top, source)
}

func isPath(source string) bool {
	return strings.HasPrefix(source, "/") || strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../")
}

// meantPath adds a hint to an error about the name of an image, if the working directory
// has a file of that name: a path needs a slash.
func meantPath(name string, err error) error {
	if err == nil || isPath(name) {
		return err
	}
	if _, statErr := os.Stat(name); statErr != nil {
		return err
	}
	return fmt.Errorf("%w; if you mean the one in this directory, say ./%s", err, name)
}

func dataDir(e *Env) string { return cmp.Or(e.Getenv(config.DataDirVariable), config.DataDir) }

// tableName returns name, or the placeholder NAME if no stage1 of the configuration can have
// that name.
func tableName(name string) string {
	if config.IsName(name) {
		return name
	}
	return "NAME"
}

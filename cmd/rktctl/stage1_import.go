package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func runStage1Import(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	address := flags.String("address", "/run/containerd/containerd.sock", "")
	namespace := flags.String("namespace", "default", "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() != 1 {
		err = fmt.Errorf("one SOURCE, and not %d", flags.NArg())
	}
	if err != nil {
		return fmt.Errorf("stage1 import: %v: %w", err, errUsage)
	}
	c, err := config.Open(e.getenv)
	if err != nil {
		return err
	}
	store, err := image.OpenStore(dataDir(e))
	if err != nil {
		return err
	}
	source := flags.Arg(0)
	i, err := importFrom(ctx, store.With(rulesOf(c)), source, *address, *namespace)
	if err != nil {
		return meantPath(source, err)
	}
	if err := i.Close(); err != nil {
		return err
	}
	if signer := store.Signer(i); signer != "" {
		fmt.Fprintf(e.stdout, "# signed by %s\n", signer)
	}
	_, err = fmt.Fprintf(e.stdout, "[stage1.%s]\ndigest = %q\n", tableName(i.Name()), i.Digest())
	return err
}

// importFrom imports an image from a path or from containerd's store.
func importFrom(ctx context.Context, store *image.Store, source, address, namespace string) (i *image.Image, err error) {
	if isPath(source) {
		return store.ImportPath(ctx, source)
	}
	client, err := dialContainerd(address, namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.close()) }()
	top, err := client.image(ctx, source)
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

func dataDir(e *env) string { return cmp.Or(e.getenv(config.DataDirVariable), config.DataDir) }

// tableName returns name, or the placeholder NAME if no stage1 of the configuration can have
// that name.
func tableName(name string) string {
	if config.IsName(name) {
		return name
	}
	return "NAME"
}

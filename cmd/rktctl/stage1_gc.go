package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func runStage1GC(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dry := flags.Bool("dry-run", false, "")
	asJSON := flags.Bool("json", false, "")
	var forget []string
	flags.Func("forget", "", func(s string) error { forget = append(forget, s); return nil })
	err := flags.Parse(args)
	switch {
	case err == nil && flags.NArg() > 0:
		err = errors.New("there are no arguments")
	case err == nil && *dry && len(forget) > 0:
		err = errors.New("--forget is no dry run")
	}
	if err != nil {
		return fmt.Errorf("stage1 gc: %v: %w", err, errUsage)
	}
	c, err := config.Open(e.getenv)
	if err != nil {
		return err
	}
	store, err := existingStore(e)
	if err != nil || store == nil {
		return err
	}
	for _, digest := range forget {
		if err := store.Forget(ctx, digest); err != nil {
			return err
		}
	}
	trees, err := store.Collect(ctx, c.Digests(), *dry)
	if *asJSON {
		return errors.Join(err, writeJSON(e.stdout, append([]image.Tree{}, trees...))) // [], not null, for no trees
	}
	return errors.Join(err, writeTrees(e.stdout, trees, *dry))
}

func writeTrees(out io.Writer, trees []image.Tree, dry bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tWHAT BECOMES OF IT\tDIGEST")
	for _, t := range trees {
		fate := "removed"
		switch {
		case t.Kept != "":
			fate = "kept: " + t.Kept
		case dry:
			fate = "would be removed"
		}
		fmt.Fprintf(w, "%s\t%.1f MiB\t%s\t%s\n", cmp.Or(t.Name, "?"), float64(t.Bytes)/(1<<20), fate, t.Digest)
	}
	return w.Flush()
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func stage1GC() *verb {
	return &verb{
		words:    []string{"stage1", "gc"},
		synopsis: "stage1 gc [OPTIONS]",
		summary:  "remove the trees of stage1s that nothing leads to any more",
		text: `DESCRIPTION
    Lists the trees of the store, and removes those that nothing leads to. What
    leads to a tree is a pod, living or not yet collected; an import; a digest in
    the configuration; an image that still looks as it did when it was rendered;
    and a shim that is about to make a pod of it. It may run at any time.

    Shims do the same whenever they render a new image. This is for whoever does
    not want to wait for that.

OPTIONS
    --dry-run         remove nothing
    --forget DIGEST   take back an import first, so that it keeps the tree no more;
                      may be given more than once
    --json            write a JSON array, one object for each tree: digest, name,
                      bytes, kept (why; absent of one that was removed)

EXIT STATUS
    0    done
    1    the configuration is wrong, or something could not be read or removed;
         where it might matter, nothing was removed
    2    the command line is wrong

ENVIRONMENT
    RKT_CONFIG      the configuration, instead of /etc/containerd-shim-rkt/config.toml
    RKT_DATA_DIR    the data directory, instead of /var/lib/rkt
`,
		run: runStage1GC,
	}
}

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
	write := writeTrees
	if *asJSON {
		write = writeTreesJSON
	}
	return errors.Join(err, write(e.stdout, trees, *dry))
}

func writeTreesJSON(w io.Writer, trees []image.Tree, _ bool) error {
	if trees == nil {
		trees = []image.Tree{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(trees)
}

func writeTrees(out io.Writer, trees []image.Tree, dry bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tWHAT BECOMES OF IT\tDIGEST")
	for _, t := range trees {
		name, fate := t.Name, "removed"
		switch {
		case t.Kept != "":
			fate = "kept: " + t.Kept
		case dry:
			fate = "would be removed"
		}
		if name == "" {
			name = "?"
		}
		fmt.Fprintf(w, "%s\t%.1f MiB\t%s\t%s\n", name, float64(t.Bytes)/(1<<20), fate, t.Digest)
	}
	return w.Flush()
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func newStage1GC(e *Env) *cobra.Command {
	cmd := verb("stage1-gc", "gc [OPTIONS]", "remove the trees of stage1s that nothing leads to any more", none)
	dry := cmd.Flags().Bool("dry-run", false, "remove nothing")
	forget := cmd.Flags().StringArray("forget", nil, "take back the import of `DIGEST`, or of the only one that begins so, first, so that it keeps the tree no more; may be given more than once")
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *dry && len(*forget) > 0 {
			return errUsage(cmd, "--forget is no dry run")
		}
		return collectTrees(cmd.Context(), e, out, *dry, *forget)
	}
	return cmd
}

func collectTrees(ctx context.Context, e *Env, out *output, dry bool, forget []string) error {
	c, err := config.Open(e.Getenv)
	if err != nil {
		return err
	}
	store, err := existingStore(e)
	if err != nil {
		return err
	}
	trees := []image.Tree{} // [], not null, for no trees
	if store != nil {
		for _, word := range forget {
			digest, err := importedDigest(store, word)
			if err != nil {
				return err
			}
			if err := store.Forget(ctx, digest); err != nil {
				return err
			}
		}
		var found []image.Tree
		found, err = store.Collect(ctx, c.Digests(), dry)
		trees = append(trees, found...)
	}
	return errors.Join(err, out.write(trees, func() *table { return treesTable(trees, dry) }))
}

// importedDigest returns the digest of the only import whose digest begins with a word, with
// or without its prefix. If there is none, it returns the word.
func importedDigest(store *image.Store, word string) (string, error) {
	imports, err := store.Imports()
	if err != nil {
		return "", err
	}
	var found []string
	for _, i := range imports {
		if word != "" && (strings.HasPrefix(i.Digest, word) || strings.HasPrefix(i.Digest, "sha512-"+word)) {
			found = append(found, i.Digest)
		}
	}
	switch len(found) {
	case 0:
		return word, nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d imported stage1 images have digests that begin with %s: %s", len(found), word, strings.Join(found, ", "))
}

func treesTable(trees []image.Tree, dry bool) *table {
	t := &table{columns: []column{{"NAME", 8}, {"SIZE", 0}, {"WHAT BECOMES OF IT", 18}, {"DIGEST", 19}}}
	for _, tree := range trees {
		fate := "removed"
		switch {
		case tree.Kept != "":
			fate = "kept: " + tree.Kept
		case dry:
			fate = "would be removed"
		}
		t.add(cmp.Or(tree.Name, "?"), fmt.Sprintf("%.1f MiB", float64(tree.Bytes)/(1<<20)), fate, tree.Digest)
	}
	return t
}

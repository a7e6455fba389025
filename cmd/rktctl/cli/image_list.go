package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/appimage"
)

func newImageList(e *Env) *cobra.Command {
	cmd := verb("image-list", "list [OPTIONS]", "list the unpacked images of apps", none)
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return collectImages(cmd.Context(), e, out, appimage.Collection{Dry: true}, false)
	}
	return cmd
}

func newImageGC(e *Env) *cobra.Command {
	cmd := verb("image-gc", "gc [OPTIONS]", "remove the unpacked images that no app has", none)
	dry := cmd.Flags().Bool("dry-run", false, "remove nothing")
	unused := cmd.Flags().Duration("unused-for", 0, "keep those that an app got within this `TIME`, such as 24h")
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *unused < 0 {
			return errUsage(cmd, "--unused-for %s is negative", *unused)
		}
		return collectImages(cmd.Context(), e, out, appimage.Collection{Dry: *dry, Unused: *unused}, true)
	}
	return cmd
}

func newImageRm(e *Env) *cobra.Command {
	cmd := verb("image-rm", "rm [OPTIONS] ID", "remove an unpacked image that no app has", takes(1, 1, "one ID"))
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if strings.Trim(strings.TrimPrefix(args[0], "sha256"), ":-") == "" {
			return errUsage(cmd, "%q has no digit of an ID", args[0])
		}
		return removeImage(cmd.Context(), e, out, args[0])
	}
	return cmd
}

// removeImage removes the tree whose id begins with some digits.
func removeImage(ctx context.Context, e *Env, out *output, id string) error {
	store, err := existingImages(e)
	if err != nil {
		return err
	}
	var found []appimage.Tree
	if store != nil {
		if found, err = store.Collect(ctx, appimage.Collection{ID: id, Dry: true}); err != nil {
			return err
		}
	}
	switch {
	case len(found) == 0:
		return fmt.Errorf("there is no unpacked image %s: rktctl image list has them all", id)
	case len(found) > 1:
		var ids []string
		for _, tree := range found {
			ids = append(ids, tree.ID)
		}
		return fmt.Errorf("%s is the beginning of the ids of %d unpacked images: %s", id, len(found), strings.Join(ids, ", "))
	case found[0].Kept != "":
		return fmt.Errorf("image %s: %s", found[0].ID, found[0].Kept)
	}
	return collectImages(ctx, e, out, appimage.Collection{ID: found[0].ID}, true)
}

// existingImages returns the store of images, or nil if there is none: looking at it does not
// make it.
func existingImages(e *Env) (*appimage.Store, error) {
	if _, err := os.Stat(filepath.Join(dataDir(e), "images")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return appimage.OpenStore(dataDir(e))
}

func collectImages(ctx context.Context, e *Env, out *output, c appimage.Collection, fate bool) error {
	store, err := existingImages(e)
	if err != nil {
		return err
	}
	trees := []appimage.Tree{} // [], not null, for no trees
	if store != nil {
		var found []appimage.Tree
		found, err = store.Collect(ctx, c)
		trees = append(trees, found...)
	}
	return errors.Join(err, out.write(trees, func() *table { return imagesTable(trees, c.Dry, fate) }))
}

// imagesTable lists trees, with what a collection does with them or with what keeps them.
func imagesTable(trees []appimage.Tree, dry, fate bool) *table {
	head := "IN USE"
	if fate {
		head = "WHAT BECOMES OF IT"
	}
	t := &table{columns: []column{{"NAME", 12}, {"SIZE", 0}, {"UNPACKED", 0}, {head, 18}, {"ID", 19}}}
	for _, tree := range trees {
		words := cmp.Or(tree.Kept, "no")
		switch {
		case !fate:
		case tree.Kept != "":
			words = "kept: " + tree.Kept
		case dry:
			words = "would be removed"
		default:
			words = "removed"
		}
		t.add(cmp.Or(tree.Name, "?"), fmt.Sprintf("%.1f MiB", float64(tree.Bytes)/(1<<20)), tree.Time.Format(time.DateTime), words, tree.ID)
	}
	return t
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// listed is one line of the list.
type listed struct {
	Name         string   `json:"name"`
	Path         string   `json:"path,omitempty"`
	Digest       string   `json:"digest,omitempty"`
	Pinned       bool     `json:"pinned"`
	Default      bool     `json:"default"`
	PodsMayAsk   bool     `json:"podsMayAsk"`
	PodsMayLeave bool     `json:"podsMayLeave"`
	Accept       []string `json:"accept,omitempty"`
	Error        string   `json:"error,omitempty"`
	Warnings     []string `json:"warnings,omitempty"`
	ImportedFrom string   `json:"importedFrom,omitempty"` // source of an image that the configuration does not name
}

func newStage1List(e *Env) *cobra.Command {
	cmd := verb("stage1-list", "list [OPTIONS]", "list the stage1s of this node, with their digests", none)
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return listStage1s(cmd.Context(), e, out) }
	return cmd
}

func listStage1s(ctx context.Context, e *Env, out *output) error {
	c, err := config.Open(e.Getenv)
	if err != nil {
		return err
	}
	names, err := image.Installed()
	if err != nil {
		return err
	}
	names = append(names, slices.Collect(maps.Keys(c.Stage1s))...)
	slices.Sort(names)
	list := []listed{}
	for _, name := range slices.Compact(names) {
		list = append(list, describe(ctx, e, c, name))
	}
	unnamed, err := unnamedImports(e, c)
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	list = append(list, unnamed...)
	if err := errors.Join(err, out.write(list, func() *table { return stage1sTable(list) })); err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(l listed) bool { return l.Error != "" }) {
		return errFound
	}
	return ctx.Err()
}

// describe returns the line of one stage1.
func describe(ctx context.Context, e *Env, c *config.Config, name string) listed {
	s := c.Stage1s[name]
	choice, err := c.Choose(config.Ask{})
	l := listed{
		Name: name, Pinned: s.Digest != "", Default: err == nil && choice.Name == name,
		PodsMayAsk: s.PodsMayAsk, PodsMayLeave: !s.PodsMustStay, Accept: s.Accept,
	}
	i, path, err := imageOf(ctx, e, c, name)
	l.Path = cmp.Or(path, s.Path)
	if err == nil {
		err = i.Close()
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("user %d may not read it: %w", os.Geteuid(), err)
	}
	if err != nil {
		l.Error = err.Error()
		return l
	}
	l.Digest, l.Warnings = i.Digest(), i.Warnings()
	warn(e, name, i)
	if l.Pinned && l.Digest != s.Digest {
		l.Error = fmt.Sprintf("the digest is %s and has to be %s", l.Digest, s.Digest)
	}
	return l
}

// unnamedImports lists imported images that the configuration does not name.
func unnamedImports(e *Env, c *config.Config) ([]listed, error) {
	store, err := existingStore(e)
	if err != nil || store == nil {
		return nil, err
	}
	imports, err := store.Imports()
	if err != nil {
		return nil, err
	}
	var list []listed
	for _, i := range imports {
		named := func(s config.Stage1) bool { return s.Digest == i.Digest }
		if !slices.ContainsFunc(slices.Collect(maps.Values(c.Stage1s)), named) {
			list = append(list, listed{Name: i.Name, Digest: i.Digest, ImportedFrom: i.Ref})
		}
	}
	return list, nil
}

func stage1sTable(list []listed) *table {
	t := &table{columns: []column{{"NAME", 8}, {"POD ANNOTATION", 0}, {"IMAGE", 20}, {"DIGEST", 19}}}
	for _, l := range list {
		name, asks, digest := l.Name, "-", cell{text: l.Digest}
		if l.Default {
			name += " (default)"
		}
		if l.PodsMayAsk {
			asks = "may ask"
		}
		path := l.Path
		switch {
		case l.ImportedFrom != "":
			name, path = l.Name+" (not configured)", "imported from "+l.ImportedFrom
		case l.Error != "":
			digest = cell{l.Error, red}
		case l.Pinned:
			digest.text = "pinned " + digest.text
		}
		t.add(name, asks, path, digest)
	}
	return t
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

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

func runStage1List(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	asJSON := flags.Bool("json", false, "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return fmt.Errorf("%q: stage1 list has the option --json and no arguments: %w", strings.Join(args, " "), errUsage)
	}
	c, err := config.Open(e.getenv)
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
	if *asJSON {
		err = errors.Join(err, writeJSON(e.stdout, list))
	} else {
		err = errors.Join(err, writeTable(e.stdout, list))
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(l listed) bool { return l.Error != "" }) {
		return errFound
	}
	return ctx.Err()
}

// describe returns the line of one stage1.
func describe(ctx context.Context, e *env, c *config.Config, name string) listed {
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
func unnamedImports(e *env, c *config.Config) ([]listed, error) {
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

func writeJSON(w io.Writer, list any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(list)
}

func writeTable(out io.Writer, list []listed) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tPOD ANNOTATION\tIMAGE\tDIGEST")
	for _, l := range list {
		name, asks, digest := l.Name, "-", l.Digest
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
			digest = l.Error
		case l.Pinned:
			digest = "pinned " + digest
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, asks, path, digest)
	}
	return w.Flush()
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/signature"
)

func newConfigCheck(e *Env) *cobra.Command {
	cmd := verb("config-check", "check [FILE]", "find what is wrong in the configuration, before a pod does", takes(0, 1, "one FILE"))
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return runConfigCheck(cmd.Context(), e, args) }
	return cmd
}

func runConfigCheck(ctx context.Context, e *Env, args []string) error {
	c, err := readConfig(e, args)
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	if err == nil {
		problems = slices.Concat(c.UnknownFields(), checkACIs(c), checkStage1s(ctx, e, c))
		slices.SortStableFunc(problems, config.Problem.Compare)
	}
	for _, p := range problems {
		fmt.Fprintln(e.Stdout, abi.Printable(p.Error()))
	}
	if len(problems) > 0 {
		return errFound
	}
	return ctx.Err()
}

// warn writes the warnings of an image, which do not count as problems.
func warn(e *Env, name string, i *image.Image) {
	for _, w := range i.Warnings() {
		fmt.Fprintf(e.Stderr, "warning: stage1 %s: %s\n", name, abi.Printable(w))
	}
}

// readConfig reads the file that the command line names, or the node's configuration.
func readConfig(e *Env, args []string) (*config.Config, error) {
	if len(args) == 0 {
		return config.Open(e.Getenv)
	}
	if _, err := os.Stat(args[0]); err != nil {
		return nil, err
	}
	return config.Read(args[0])
}

// checkStage1s returns the problems of the images.
func checkStage1s(ctx context.Context, e *Env, c *config.Config) config.Problems {
	var problems config.Problems
	for _, name := range slices.Sorted(maps.Keys(c.Stage1s)) {
		s := c.Stage1s[name]
		if p := checkImage(ctx, e, c, name, s); p != nil {
			problems = append(problems, *p)
		}
	}
	if _, isNamed := c.Stage1s[c.Default]; c.Default != "" && !isNamed {
		if _, err := image.Locate(c.Default); err != nil {
			problems = append(problems, c.Problem("default", "%v", err))
		}
	}
	return problems
}

// checkACIs returns the problems of the directories of dependencies and keys.
func checkACIs(c *config.Config) config.Problems {
	var problems config.Problems
	for _, dir := range c.ACIs.Dependencies {
		if _, err := os.ReadDir(dir); err != nil {
			problems = append(problems, c.Problem("aci.dependencies", "%v", err))
		}
	}
	if c.ACIs.Keyring != "" {
		if err := signature.Keyring(c.ACIs.Keyring).Check(); err != nil {
			problems = append(problems, c.Problem("aci.keyring", "%v", err))
		}
	}
	return problems
}

// rulesOf returns the rules for ACIs. Unlike the shim's rules, these verify signatures.
func rulesOf(c *config.Config) image.ACIs {
	return image.ACIs{
		Directories: c.ACIs.Dependencies, Signed: c.ACIs.Keyring != "", Verify: signature.Keyring(c.ACIs.Keyring).Verify,
	}
}

// checkImage returns the problem of a stage1's image, or nil.
func checkImage(ctx context.Context, e *Env, c *config.Config, name string, s config.Stage1) *config.Problem {
	key := "stage1." + name
	fail := func(member, format string, args ...any) *config.Problem {
		p := c.Problem(key+member, format, args...)
		return &p
	}
	i, path, err := imageOf(ctx, e, c, name)
	if err == nil {
		err = i.Close()
	}
	switch {
	case err != nil && s.Path != "":
		return fail(".path", "%v", err)
	case err != nil && s.Digest != "":
		return fail(".digest", "%v", err)
	case err != nil:
		return fail("", "%v", err)
	case s.Digest != "" && s.Digest != i.Digest():
		return fail(".digest", "the image %s has the digest %s: it is another one or was changed", path, i.Digest())
	}
	warn(e, name, i)
	return nil
}

// imageOf returns the image of a stage1 for new pods, and its path.
func imageOf(ctx context.Context, e *Env, c *config.Config, name string) (i *image.Image, path string, err error) {
	s, rules := c.Stage1s[name], rulesOf(c)
	store, errStore := existingStore(e)
	rendered := s.Path == "" && s.Digest != ""
	if errStore != nil && (rendered || !errors.Is(errStore, fs.ErrPermission)) {
		return nil, treesDir(e), errStore
	}
	if rendered && store != nil {
		i, err := store.With(rules).Rendered(s.Digest)
		if !errdefs.IsNotFound(err) {
			return i, treesDir(e), err
		}
	}
	if path = s.Path; path == "" {
		if path, err = image.Locate(name); err != nil {
			return nil, "", err
		}
	}
	if i, err = rules.Inspect(ctx, path); err != nil {
		return nil, path, err
	}
	if store == nil { // if there is no store, nothing was imported
		store = &image.Store{}
	}
	if err = store.With(rules).Signed(i); err != nil && errStore != nil {
		err = errStore // the records of imports could not be read
	}
	return i, path, err
}

func treesDir(e *Env) string { return filepath.Join(dataDir(e), "trees") }

// existingStore opens the tree store, and does not make one. It returns nil if there is no
// store. Its error is fs.ErrPermission if the user may not read the store.
func existingStore(e *Env) (*image.Store, error) {
	trees, err := os.Open(treesDir(e))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for imported stage1s: %w", err)
	}
	trees.Close()
	return image.OpenStore(dataDir(e))
}

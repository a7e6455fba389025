package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/rktabi"
)

// verification has the options and arguments of stage1 verify.
type verification struct {
	level    int
	patterns []string
	accept   []string
	keep     bool
	list     bool
	show     abi.Entrypoint
	timeout  time.Duration
	seed     uint32
	image    string
	out      *output
}

func newStage1Verify(e *Env) *cobra.Command {
	cmd := verb("stage1-verify", "verify [OPTIONS] NAME|IMAGE|DIGEST", "find out whether a stage1 keeps the ABI, by running it (as root)", takes(0, 1, "one NAME, IMAGE or DIGEST"))
	v := &verification{out: newOutput(e, cmd)}
	flags := cmd.Flags()
	flags.IntVar(&v.level, "level", 0, "claim the level `N`: checks of higher ones are not run, and what the level demands has to be there")
	flags.StringArrayVar(&v.patterns, "run", nil, "run only the check whose id is `PATTERN`, or those whose id has it in it, where * stands for anything; may be given more than once")
	flags.StringArrayVar(&v.accept, "accept", nil, "excuse the stage1 a `FIELD` of config.json, as a JSON pointer; may be given more than once")
	flags.StringVar((*string)(&v.show), "show", "", "run checks until one has made this `CALL` (app/add, enter, run, ...), and print it as the entrypoint received it: "+
		"arguments, environment, descriptors and the whole request. With --run, only the checks of that id are run. "+
		"Every call is shown as an execution, also where the image has a socket")
	flags.BoolVar(&v.keep, "keep", false, "keep the directory of a check that has failed, with the journals of its pods and what the stage1 has written, and say where")
	flags.DurationVar(&v.timeout, "timeout", 0, "the `TIME` that one check may take; if it is not given 60s, and on a busy machine up to six times as long")
	flags.Uint32Var(&v.seed, "seed", 0, "ask for the values that the number `N` determines, such as users, limits and names of programs; if it is not given, a random one, which the output names")
	flags.BoolVar(&v.list, "list", false, "list the checks, and run none")
	_ = cmd.RegisterFlagCompletionFunc("show", cobra.FixedCompletions(strings.Split(listOf(conformance.Showable()), ", "), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := v.complete(cmd, args); err != nil {
			return err
		}
		checks, err := v.checks(cmd)
		if err != nil {
			return err
		}
		if v.list {
			return v.listChecks(e, checks)
		}
		return v.run(cmd.Context(), e, checks)
	}
	return cmd
}

// complete checks the options and takes the arguments.
func (v *verification) complete(cmd *cobra.Command, images []string) error {
	if !cmd.Flags().Changed("timeout") {
		v.timeout = time.Minute * conformance.Pace()
	}
	if !cmd.Flags().Changed("seed") && v.show == "" { // a call that is shown has the values of the documents
		v.seed = rand.Uint32()
	}
	switch {
	case v.list && len(images) == 0:
		return nil
	case len(images) != 1:
		return errUsage(cmd, "one IMAGE, and not %d", len(images))
	case v.level < 0 || v.level > conformance.Levels:
		return errUsage(cmd, "the levels are 1 to %d", conformance.Levels)
	case v.show != "" && !slices.Contains(conformance.Showable(), v.show):
		return errUsage(cmd, "--show: no call has the name %q; the calls are %s", v.show, listOf(conformance.Showable()))
	case v.timeout <= 0:
		return errUsage(cmd, "the timeout has to be positive")
	}
	v.image = images[0]
	return nil
}

// checks returns the checks that the command line selects.
func (v *verification) checks(cmd *cobra.Command) ([]conformance.Check, error) {
	all := conformance.Select(conformance.Checks(), v.patterns...)
	if v.show != "" && len(v.patterns) == 0 {
		all = conformance.ChecksCalling(v.show)
	}
	var wanted []conformance.Check
	for _, c := range all {
		if v.level == 0 || int(c.Level) <= v.level {
			wanted = append(wanted, c)
		}
	}
	if len(wanted) == 0 {
		return nil, errUsage(cmd, "no check has such an id; --list shows them")
	}
	return wanted, nil
}

// listChecks writes the checks.
func (v *verification) listChecks(e *Env, checks []conformance.Check) error {
	type listed struct {
		ID       string            `json:"id"`
		Level    conformance.Level `json:"level"`
		Sentence string            `json:"sentence"`
		Section  string            `json:"section"`
	}
	var list []listed
	for _, c := range checks {
		if v.out.isText() {
			fmt.Fprintf(e.Stdout, "%-24s %d  %s (section %s)\n", c.ID, c.Level, c.Sentence, c.Section)
		}
		list = append(list, listed{c.ID, c.Level, c.Sentence, c.Section})
	}
	if v.out.isText() {
		return nil
	}
	return v.out.writeDocument(list)
}

func (v *verification) run(ctx context.Context, e *Env, checks []conformance.Check) error {
	// If the reader closes the output, or the terminal is closed, stop the checks and end
	// their processes.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// SIGPIPE is caught, so that a write to a closed pipe returns an error and does not
	// end this process. The signal itself is ignored: a write to an app that reads no
	// input causes it as well.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)
	watched := *e
	watched.Stdout = &watchedOutput{e.Stdout, cancel}
	v.out.env = &watched
	path, accept, err := verifiedImage(ctx, e, v.image)
	if err != nil {
		return err
	}
	c := conformance.KitConfig{
		Image: path, Excuse: append(accept, v.accept...), Timeout: v.timeout, Keep: v.keep, Seed: v.seed,
		Doors: Doors(),
	}
	if v.show != "" {
		err = v.showCall(ctx, &watched, checks, c)
	} else {
		err = v.verify(ctx, &watched, checks, c)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // of a step that does not know the cause
	}
	return err
}

// Doors are passed to package stage1 for the images that it does not call itself.
func Doors() []stage1.Door { return []stage1.Door{immutable.Open, rktabi.Open} }

// verifiedImage returns the path of an image that is named by a path, by the name of a stage1, or by
// the beginning of the digest of a tree in the store; and the fields of a spec that it may ignore.
func verifiedImage(ctx context.Context, e *Env, image string) (path string, accept []string, err error) {
	if strings.Contains(image, "/") {
		return image, nil, nil
	}
	c, err := config.Open(e.Getenv)
	if err != nil {
		return "", nil, err
	}
	named, err := isStage1(c, image)
	if err != nil {
		return "", nil, err
	}
	if !named {
		digest, err := treeNamed(e, image)
		if err != nil {
			err = fmt.Errorf("stage1 %s: %w", image, err)
		}
		return filepath.Join(treesDir(e), digest), nil, meantPath(image, err)
	}
	s := c.Stage1s[image]
	found, path, err := imageOf(ctx, e, c, image)
	if err == nil && path == filepath.Join(dataDir(e), "trees") {
		path = filepath.Join(path, found.Digest())
	}
	return path, s.Accept, meantPath(image, err)
}

// verify runs the checks and writes their results.
func (v *verification) verify(ctx context.Context, e *Env, checks []conformance.Check, c conformance.KitConfig) (err error) {
	out := e.Stdout
	if !v.out.isText() {
		out = io.Discard
	}
	k, err := conformance.Open(ctx, c)
	if err != nil {
		var image *conformance.ImageError
		if errors.As(err, &image) {
			fmt.Fprintf(out, "TAP version 14\nBail out! %s\n", abi.Printable(err.Error()))
		}
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	warn(e, k.Image().Name(), k.Image())
	tap := conformance.NewTAP(out, len(checks), v.seed)
	progress := progressOf(e, len(checks))
	results, err := k.Run(ctx, checks, progress.begin, tap.Result)
	progress.end()
	if err != nil {
		tap.Bail(err.Error())
		err = fmt.Errorf("stage1 verify: after %d of %d checks: %w", len(results), len(checks), err)
		return errors.Join(err, keptIn(k)) // the results that name it may be unread
	}
	r := conformance.Report{
		Image: c.Image, Name: k.Image().Name(), Digest: k.Image().Digest(), Seed: v.seed,
		Claimed: conformance.Level(v.level), Whole: len(v.patterns) == 0,
		Results: results, Capabilities: k.Capabilities(results),
	}
	r.Judge()
	if r.Whole {
		r.Unchecked = k.Unchecked(results)
		if o, err := k.Overhead(ctx); err == nil {
			r.Overhead = &o
		}
	}
	tap.End(&r)
	if !v.out.isText() {
		if err := v.out.writeDocument(&r); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), keptIn(k))
	}
	if !r.Holds {
		return errFound
	}
	return nil
}

// keptIn returns an error that names the directory of checks that have failed, if there is one.
func keptIn(k *conformance.Kit) error {
	if dir := k.Kept(); dir != "" {
		return fmt.Errorf("the files of failed checks are in %s", dir)
	}
	return nil
}

// watchedOutput cancels the checks when the reader of the output has closed it.
type watchedOutput struct {
	io.Writer
	cancel context.CancelCauseFunc
}

// Write implements io.Writer.
func (w *watchedOutput) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		w.cancel(fmt.Errorf("the output is not read any more: %w", err))
	}
	return n, err
}

// progress shows the check that is running on a terminal at stderr, if stdout is no
// terminal.
type progress struct {
	w     io.Writer // nil if nothing is shown
	n, of int
}

func progressOf(e *Env, of int) *progress {
	p := &progress{of: of}
	if isTerminal(e.Stderr) && !isTerminal(e.Stdout) {
		p.w = e.Stderr
	}
	return p
}

func (p *progress) begin(c conformance.Check) {
	p.n++
	if p.w != nil {
		fmt.Fprintf(p.w, "\r\x1b[K%d/%d %s", p.n, p.of, c.ID)
	}
}

func (p *progress) end() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/log"

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
	json     bool
	keep     bool
	list     bool
	show     abi.Entrypoint
	timeout  time.Duration
	image    string
}

func parseVerification(args []string) (*verification, error) {
	v := &verification{}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&v.level, "level", 0, "")
	flags.BoolVar(&v.json, "json", false, "")
	flags.BoolVar(&v.keep, "keep", false, "")
	flags.BoolVar(&v.list, "list", false, "")
	flags.StringVar((*string)(&v.show), "show", "", "")
	flags.DurationVar(&v.timeout, "timeout", time.Minute*conformance.Pace(), "")
	several := func(name string, list *[]string) {
		flags.Func(name, "", func(s string) error { *list = append(*list, s); return nil })
	}
	several("run", &v.patterns)
	several("accept", &v.accept)
	var images []string
	for rest := args; ; { // options may follow the image
		if err := flags.Parse(rest); err != nil {
			return nil, fmt.Errorf("stage1 verify: %v: %w", err, errUsage)
		}
		if rest = flags.Args(); len(rest) == 0 {
			break
		}
		images, rest = append(images, rest[0]), rest[1:]
	}
	switch {
	case v.list && len(images) == 0:
		return v, nil
	case len(images) != 1:
		return nil, fmt.Errorf("stage1 verify: one IMAGE, and not %d: %w", len(images), errUsage)
	case v.level < 0 || v.level > conformance.Levels:
		return nil, fmt.Errorf("stage1 verify: the levels are 1 to %d: %w", conformance.Levels, errUsage)
	case v.show != "" && !slices.Contains(conformance.Showable(), v.show):
		return nil, fmt.Errorf("stage1 verify: --show: no call has the name %q; the calls are %s: %w", v.show, listOf(conformance.Showable()), errUsage)
	case v.timeout <= 0:
		return nil, fmt.Errorf("stage1 verify: the timeout has to be positive: %w", errUsage)
	}
	v.image = images[0]
	return v, nil
}

// checks returns the checks that the command line selects.
func (v *verification) checks() ([]conformance.Check, error) {
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
		return nil, fmt.Errorf("stage1 verify: no check has such an id; --list shows them: %w", errUsage)
	}
	return wanted, nil
}

func runStage1Verify(ctx context.Context, e *env, args []string) error {
	v, err := parseVerification(args)
	if err != nil {
		return err
	}
	checks, err := v.checks()
	if err != nil {
		return err
	}
	if v.list {
		for _, c := range checks {
			fmt.Fprintf(e.stdout, "%-24s %d  %s (section %s)\n", c.ID, c.Level, c.Sentence, c.Section)
		}
		return nil
	}
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
	watched.stdout = &watchedOutput{e.stdout, cancel}
	// Drop the log of stage 0: the results and the pod's journal have its contents.
	log.L.Logger.SetOutput(io.Discard)
	path, accept, err := verifiedImage(ctx, e, v.image)
	if err != nil {
		return err
	}
	c := conformance.KitConfig{
		Image: path, Excuse: append(accept, v.accept...), Timeout: v.timeout, Keep: v.keep,
		Doors: doors(),
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

// doors are passed to package stage1 for the images that it does not call itself.
func doors() []stage1.Door { return []stage1.Door{immutable.Open, rktabi.Open} }

// verifiedImage returns the path of an image, and the fields of a spec that it may
// ignore.
func verifiedImage(ctx context.Context, e *env, image string) (path string, accept []string, err error) {
	if strings.Contains(image, "/") {
		return image, nil, nil
	}
	c, err := config.Open(e.getenv)
	if err != nil {
		return "", nil, err
	}
	s := c.Stage1s[image]
	found, path, err := imageOf(ctx, e, c, image)
	if err == nil && path == filepath.Join(dataDir(e), "trees") {
		path = filepath.Join(path, found.Digest())
	}
	return path, s.Accept, meantPath(image, err)
}

// verify runs the checks and writes their results.
func (v *verification) verify(ctx context.Context, e *env, checks []conformance.Check, c conformance.KitConfig) (err error) {
	out := e.stdout
	if v.json {
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
	tap := conformance.NewTAP(out, len(checks))
	progress := progressOf(e, len(checks))
	results, err := k.Run(ctx, checks, progress.begin, tap.Result)
	progress.end()
	if err != nil {
		tap.Bail(err.Error())
		err = fmt.Errorf("stage1 verify: after %d of %d checks: %w", len(results), len(checks), err)
		return errors.Join(err, keptIn(k)) // the results that name it may be unread
	}
	r := conformance.Report{
		Image: c.Image, Name: k.Image().Name(), Digest: k.Image().Digest(),
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
	if v.json {
		if err := r.WriteJSON(e.stdout); err != nil {
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

func progressOf(e *env, of int) *progress {
	p := &progress{of: of}
	if isTerminal(e.stderr) && !isTerminal(e.stdout) {
		p.w = e.stderr
	}
	return p
}

func isTerminal(w io.Writer) bool {
	if r, ok := w.(*watchedOutput); ok {
		w = r.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
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

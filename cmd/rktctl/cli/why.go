package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// why has the options of the verb why.
type why struct {
	env             *Env
	stage1, runtime string
	out             *output
}

func newWhy(e *Env) *cobra.Command {
	cmd := verb("why", "why [OPTIONS] [POD|CONTAINER|CONFIG.JSON]", "explain a pod, a start that has failed, or a config.json before it is run", takes(0, 1, "one POD, CONTAINER or CONFIG.JSON"))
	w := &why{env: e, out: newOutput(e, cmd)}
	cmd.Flags().StringVar(&w.stage1, "stage1", "", "judge a config.json for the stage1 `NAME`; if it is not given, for the one that its annotations and the configuration choose")
	cmd.Flags().StringVar(&w.runtime, "runtime", config.RuntimeName(""), "judge a config.json for the runtime `TYPE`, whose name may pin a stage1")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && w.stage1 != "":
			return errUsage(cmd, "--stage1 needs a CONFIG.JSON")
		case len(args) == 0:
			return w.failures()
		case isFile(args[0]):
			pinned, ok := config.PinnedStage1(w.runtime)
			if !ok {
				return errUsage(cmd, "--runtime: %q is no runtime of this shim, such as %s or %s", w.runtime, config.RuntimeName(""), config.RuntimeName("oci"))
			}
			return w.spec(cmd.Context(), args[0], pinned)
		case w.stage1 != "" || cmd.Flags().Changed("runtime"):
			return errUsage(cmd, "--stage1 and --runtime need a CONFIG.JSON, and there is no file %s", args[0])
		}
		return w.pod(cmd.Context(), args[0])
	}
	return cmd
}

// isFile reports whether an argument names a file.
func isFile(arg string) bool {
	st, err := os.Stat(arg)
	return err == nil && !st.IsDir()
}

// pod explains the pod or the failed start that a word names.
func (w *why) pod(ctx context.Context, word string) error {
	node, err := view.Open(dataDir(w.env))
	if err != nil {
		return err
	}
	p, app, err := node.Find(word)
	if errdefs.IsNotFound(err) {
		failed, failedErr := w.failed(word)
		if failedErr != nil {
			return failedErr
		}
		if len(failed) == 0 {
			return fmt.Errorf("%w; nor is it a file, nor has a start of it failed lately: rktctl why lists those", err)
		}
		return w.writeFailed(failed)
	}
	if err != nil {
		return err
	}
	s, err := w.storyOf(ctx, node, p, app)
	if err != nil {
		return err
	}
	if !w.out.isText() {
		return w.out.writeDocument(s)
	}
	return s.write(w.env.Stdout)
}

// failed returns the failed starts that a word names: by the beginning of the id of a
// container, of the UUID of a pod, or of the names that Kubernetes gave them.
func (w *why) failed(word string) ([]disk.FailedStart, error) {
	all, err := disk.Failures(dataDir(w.env))
	var found []disk.FailedStart
	for _, f := range all {
		for _, s := range f.Starts {
			_, pod, _ := strings.Cut(s.Kubernetes, "/")
			if strings.HasPrefix(s.ID, word) || strings.HasPrefix(s.Pod, word) || strings.HasPrefix(s.Kubernetes, word) || strings.HasPrefix(pod, word) {
				found = append(found, f)
				break
			}
		}
	}
	return found, err
}

// failures lists the failed starts.
func (w *why) failures() error {
	all, err := disk.Failures(dataDir(w.env))
	if err != nil {
		return err
	}
	if !w.out.isText() {
		if all == nil {
			all = []disk.FailedStart{}
		}
		return w.out.writeDocument(all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w.env.Stdout, "No start has failed lately.")
		return err
	}
	t := &table{columns: []column{{"LAST", 0}, {"TIMES", 0}, {"CONTAINER", 12}, {"STEP", 0}, {"ERROR", 30}}}
	for _, f := range all {
		t.add(f.Last().Time.Local().Format(time.DateTime), f.Count, cmp.Or(f.Last().Kubernetes, f.Last().ID), f.Step, cell{f.Error, red})
	}
	return t.write(w.env)
}

// steps says what a step of a start is, in the words of a person.
var steps = map[string]string{
	disk.StepServer:        "before there was a shim",
	disk.StepCreate:        "when the container was created",
	disk.StepStart:         "when the created container was started",
	disk.StepCreateSandbox: "when the sandbox was created",
	disk.StepStartSandbox:  "when the sandbox was started",
}

func (w *why) writeFailed(failed []disk.FailedStart) error {
	if !w.out.isText() {
		return w.out.writeDocument(failed)
	}
	var b strings.Builder
	for i, f := range failed {
		if i > 0 {
			b.WriteString("\n")
		}
		last := f.Last()
		fmt.Fprintf(&b, "The start of %s failed at %s, %s.\n", last.ID, last.Time.Local().Format(time.DateTime), cmp.Or(steps[f.Step], f.Step))
		if last.Kubernetes != "" {
			fmt.Fprintf(&b, "Kubernetes calls it %s.\n", last.Kubernetes)
		}
		if f.Count > 1 {
			fmt.Fprintf(&b, "It has failed like this %d times since %s.\n", f.Count, f.First.Local().Format(time.DateTime))
		}
		fmt.Fprintf(&b, "\n  %s\n", strings.ReplaceAll(f.Error, "\n", "\n  "))
		if f.Stage1 != nil {
			fmt.Fprintf(&b, "\n%s", chosen(view.Stage1{Name: f.Stage1.Name, Digest: f.Stage1.Digest, By: f.Stage1.By, Excused: f.Stage1.Excused}))
		}
		for _, key := range sortedKeys(f.Annotations) {
			fmt.Fprintf(&b, "annotation that has arrived: %s = %s\n", key, f.Annotations[key])
		}
		if len(f.Options) > 0 {
			fmt.Fprintf(&b, "runtime options that have arrived: %s\n", strings.Join(f.Options, ", "))
		}
		writeCalls(&b, f.Calls)
	}
	_, err := io.WriteString(w.env.Stdout, abi.Printable(b.String()))
	return err
}

// readSpec reads a config.json of a person's choice.
func readSpec(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const most = 16 << 20
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(text) > most {
		err = errors.New(path + " is longer than a config.json can be")
	}
	return text, err
}

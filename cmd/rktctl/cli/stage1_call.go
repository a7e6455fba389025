package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

func newStage1Call(e *Env) *cobra.Command {
	cmd := verb("stage1-call", "call [OPTIONS] NAME|IMAGE|DIGEST ENTRYPOINT [-- COMMAND...]", "make one call of an entrypoint by hand, in a pod made for it (as root)", takes(2, 1000, "an IMAGE and an ENTRYPOINT"))
	h := conformance.ByHand{}
	out := newOutput(e, cmd)
	flags := cmd.Flags()
	config := flags.String("config", "", "the app has the config.json `FILE`, whose root has to exist, and not a program of rktctl's")
	limits := flags.String("limits", `{"pids":{"limit":64}}`, "app/update sets these limits: an OCI linux.resources `OBJECT`")
	flags.IntVar(&h.Signal, "signal", 15, "app/signal sends the signal `N`")
	flags.BoolVar(&h.Execute, "execute", false, "execute the entrypoint, also if the image answers on a socket")
	keep := flags.StringArray("accept", nil, "excuse the stage1 a `FIELD` of config.json, as a JSON pointer; may be given more than once")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return strings.Split(joined(conformance.Callable()), ", "), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h.Entrypoint, h.Limits = abi.Entrypoint(args[1]), json.RawMessage(*limits)
		switch {
		case !slices.Contains(conformance.Callable(), h.Entrypoint):
			return errUsage(cmd, "no call has the name %q; the calls are %s", args[1], joined(conformance.Callable()))
		case len(args) > 2 && h.Entrypoint != abi.Enter:
			return errUsage(cmd, "only enter has a COMMAND")
		case !json.Valid(h.Limits):
			return errUsage(cmd, "--limits: %q is no JSON", *limits)
		case h.Signal < 1 || h.Signal > 64:
			return errUsage(cmd, "--signal: there is no signal %d", h.Signal)
		}
		h.Command = args[2:]
		if *config != "" {
			if err := takeSpec(&h, *config); err != nil {
				return err
			}
		}
		return callByHand(cmd, e, out, args[0], h, *keep)
	}
	return cmd
}

// takeSpec reads the config.json of the app.
func takeSpec(h *conformance.ByHand, path string) error {
	text, err := readSpec(path)
	if err != nil {
		return err
	}
	h.Spec = &specs.Spec{}
	if err := json.Unmarshal(text, h.Spec); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if h.Spec.Root == nil || h.Spec.Process == nil {
		return fmt.Errorf("%s has no process or no root", path)
	}
	h.Dir, err = filepath.Abs(filepath.Dir(path))
	return err
}

func callByHand(cmd *cobra.Command, e *Env, out *output, image string, h conformance.ByHand, accept []string) (err error) {
	ctx := cmd.Context()
	path, excused, err := verifiedImage(ctx, e, image)
	if err != nil {
		return err
	}
	k, err := conformance.Open(ctx, conformance.KitConfig{
		Image: path, Excuse: append(excused, accept...), Doors: Doors(), Timeout: conformance.CallLimit(),
	})
	if err != nil {
		return fmt.Errorf("stage1 call: %w", err)
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if out.isText() {
		h.Show = func(m *conformance.Made) { writeRequest(e.Stdout, m) }
	}
	m, err := k.Call(ctx, h)
	if err != nil {
		return fmt.Errorf("stage1 call: %w", err)
	}
	if out.isText() {
		writeAnswer(e, m)
	} else if err := out.writeDocument(m); err != nil {
		return err
	}
	if m.Code != 0 || m.Left != "" {
		return errFound
	}
	return nil
}

// writeRequest writes a call that is about to be made.
func writeRequest(w io.Writer, m *conformance.Made) {
	if len(m.Before) > 0 {
		fmt.Fprintf(w, "# before: %s\n", strings.Join(m.Before, ", "))
	}
	how := "executed"
	if m.Served {
		how = "on its socket"
	}
	fmt.Fprintf(w, "# %s, %s\n", m.Entrypoint, how)
	for _, list := range []struct {
		title string
		lines []string
	}{{"arguments", m.Argv}, {"environment", m.Env}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(w, "\n%s\n    %s\n", list.title, abi.Printable(strings.Join(list.lines, "\n    ")))
		}
	}
	writeDocument(w, "request", m.Request)
	writeDocument(w, "process, in the file "+abi.EnvProcess, m.Process)
}

// writeAnswer writes the answer of a call.
func writeAnswer(e *Env, m *conformance.Made) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\nanswer, after %.1f ms\n", m.Millis)
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "    %-10s %s\n", name, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n               "))
		}
	}
	line("code", fmt.Sprintf("%d: %s", m.Code, m.Meaning))
	line("said", m.Words)
	line("ready", m.Ready)
	line("output", m.Output)
	if m.Exit != nil {
		line("exit", fmt.Sprintf("the program has ended with %d", *m.Exit))
	}
	line("left", m.Left)
	writeDocument(&b, "answer's document", m.Answer)
	fmt.Fprint(e.Stdout, abi.Printable(b.String()))
}

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

// showCall writes what an entrypoint receives in the first check that calls it.
func (v *verification) showCall(ctx context.Context, e *Env, checks []conformance.Check, c conformance.KitConfig) (err error) {
	k, err := conformance.Open(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	s, err := k.Show(ctx, v.show, checks)
	if err != nil {
		return fmt.Errorf("stage1 verify: --show %s: %w", v.show, err)
	}
	if !v.out.isText() {
		return v.out.writeDocument(s)
	}
	writeCall(e.Stdout, s)
	return nil
}

func writeCall(w io.Writer, s *conformance.Shown) {
	fmt.Fprintf(w, "# %s, in the check %s: %s\n", s.Entrypoint, s.Check, abi.Printable(s.Sentence))
	fmt.Fprintf(w, "\nworking directory\n    %s\n\narguments\n", s.Directory)
	for _, a := range s.Args {
		fmt.Fprintf(w, "    %s\n", abi.Printable(a))
	}
	fmt.Fprint(w, "\nenvironment\n")
	for _, v := range s.Env {
		fmt.Fprintf(w, "    %s\n", abi.Printable(v))
	}
	fmt.Fprint(w, "\ndescriptors\n")
	for _, d := range s.Descriptors {
		fmt.Fprintf(w, "    %d  %-5s  %s\n", d.FD, d.Access, abi.Printable(d.File))
	}
	writeDocument(w, "request", s.Request)
	writeDocument(w, "process, in the file "+abi.EnvProcess, s.Process)
}

func writeDocument(w io.Writer, title string, text json.RawMessage) {
	if len(text) == 0 {
		return
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "    ", "  "); err != nil {
		b.Reset()
		b.Write(text)
	}
	fmt.Fprintf(w, "\n%s\n    %s\n", title, &b)
}

// listOf joins the names of entrypoints.
func listOf(names []abi.Entrypoint) string {
	var all []string
	for _, n := range names {
		all = append(all, string(n))
	}
	return strings.Join(all, ", ")
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/doctor"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

func newDoctor(e *Env) *cobra.Command {
	cmd := verb("doctor", "doctor [OPTIONS]", "find what is wrong with this node, and how to put it right", none)
	containerd := cmd.Flags().String("containerd-config", "", "containerd's configuration is `FILE`; if it is not given, that of the running containerd, or /etc/containerd/config.toml")
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		findings := doctor.Examine(cmd.Context(), thisNode(cmd.Context(), e, *containerd))
		if err := writeFindings(e, out, findings); err != nil {
			return err
		}
		if slices.ContainsFunc(findings, doctor.Finding.Wrong) {
			return errFound
		}
		return cmd.Context().Err()
	}
	return cmd
}

// thisNode describes this node for its examination.
func thisNode(ctx context.Context, e *Env, containerd string) doctor.Node {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	n := doctor.Node{
		Proc: "/proc", Release: unix.ByteSliceToString(uts.Release[:]), DataDir: dataDir(e),
		Containerd: containerd, Getenv: e.Getenv, Version: e.Version,
	}
	c, err := config.Open(e.Getenv)
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
	case err != nil:
		n.Problems = []doctor.Finding{{Area: "configuration", Severity: doctor.Error, Text: err.Error(), Fix: "see docs/config.md"}}
	default:
		problems = slices.Concat(c.UnknownFields(), checkACIs(c))
	}
	for _, p := range problems {
		n.Problems = append(n.Problems, doctor.Finding{Area: "configuration", Severity: doctor.Error, Text: p.Error(), Fix: fmt.Sprintf("%s:%d", p.File, p.Line)})
	}
	if c == nil {
		c = &config.Config{}
	}
	n.Stage1s = stage1sOf(ctx, e, c)
	return n
}

// stage1sOf returns the stage1s of this node: those that came with the shim, and those that
// the configuration names.
func stage1sOf(ctx context.Context, e *Env, c *config.Config) []doctor.Stage1 {
	names, _ := image.Installed()
	names = append(names, slices.Collect(maps.Keys(c.Stage1s))...)
	choice, err := c.Choose(config.Ask{})
	if err == nil {
		names = append(names, choice.Name)
	}
	slices.Sort(names)
	var all []doctor.Stage1
	for _, name := range slices.Compact(names) {
		_, configured := c.Stage1s[name]
		s := doctor.Stage1{Name: name, InUse: configured || name == choice.Name}
		describeStage1(ctx, e, c, &s)
		all = append(all, s)
	}
	return all
}

// describeStage1 looks at the image of a stage1.
func describeStage1(ctx context.Context, e *Env, c *config.Config, s *doctor.Stage1) {
	i, path, err := imageOf(ctx, e, c, s.Name)
	if err != nil {
		s.Problem = err
		return
	}
	defer i.Close()
	if pin := c.Stage1s[s.Name].Digest; pin != "" && pin != i.Digest() {
		s.Problem = fmt.Errorf("the image %s has the digest %s, and the configuration wants %s", path, i.Digest(), pin)
		return
	}
	s.AppcName = i.AppcName()
	if image.IsTree(path) {
		s.Rootfs = filepath.Join(path, "rootfs")
	}
	for _, entrypoint := range abi.Entrypoints() {
		if p := i.Entrypoint(entrypoint); p != "" {
			s.Programs = append(s.Programs, p)
		}
	}
	_, _, s.Probe = probed(ctx, i, s.Name)
}

// colourOf returns the colour of a severity.
func colourOf(s doctor.Severity) colour {
	return map[doctor.Severity]colour{doctor.OK: green, doctor.Note: dim, doctor.Warning: yellow, doctor.Error: red}[s]
}

func writeFindings(e *Env, out *output, findings []doctor.Finding) error {
	if !out.isText() {
		return out.writeDocument(findings)
	}
	wrong := 0
	for _, f := range findings {
		if f.Wrong() {
			wrong++
		}
		fmt.Fprintf(e.Stdout, "%s %s: %s\n", e.paint(fmt.Sprintf("%-7s", f.Severity), colourOf(f.Severity)), f.Area, f.Text)
		if f.Fix != "" {
			fmt.Fprintf(e.Stdout, "        %s\n", f.Fix)
		}
	}
	if wrong == 0 {
		_, err := fmt.Fprintln(e.Stdout, "Nothing is wrong.")
		return err
	}
	_, err := fmt.Fprintf(e.Stdout, "To be put right: %d of %d findings.\n", wrong, len(findings))
	return err
}

// paint returns a text in a colour, if the output may have colours.
func (e *Env) paint(text string, c colour) string {
	if !e.coloured() || c == "" {
		return text
	}
	return string(c) + text + "\x1b[0m"
}

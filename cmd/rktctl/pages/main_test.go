package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestEveryCommandHasAManPage(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	var want []string
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if !c.IsAvailableCommand() && c.HasParent() {
			return
		}
		page := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		want = append(want, page)
		text, err := os.ReadFile(filepath.Join(dir, "man/man1", page))
		if err != nil {
			t.Error(err)
		}
		plain := strings.NewReplacer(`\-`, "-", `\e`, `\`).Replace(string(text))
		for _, part := range []string{".TH ", "\n.SH NAME\n", "\n.SH SYNOPSIS\n", " - " + c.Short + "\n", strings.ReplaceAll("\n"+c.Example, "\n    ", "\n")} {
			if !strings.Contains(plain, part) {
				t.Errorf("%s has no %q", page, part)
			}
		}
		for line := range strings.Lines(string(text)) {
			request, title, _ := strings.Cut(line, " ")
			if request == ".SH" && title != strings.ToUpper(title) ||
				strings.HasPrefix(line, ".") && !slices.Contains([]string{".TH", ".SH", ".nf\n", ".fi\n"}, request) {
				t.Errorf("%s has the line %q", page, line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(tree())
	if len(want) < 10 || !slices.Contains(want, "rktctl-stage1-verify.1") {
		t.Errorf("the commands have the pages %q", want)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "man/man1/*"))
	for _, f := range files {
		if !slices.Contains(want, filepath.Base(f)) {
			t.Errorf("%s is of no command", f)
		}
	}
}

func TestPagesOfRemovedCommandsGo(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := write(dir); err != nil {
			t.Fatal(err)
		}
		old := filepath.Join(dir, "man/man1/rktctl-old.1")
		if _, err := os.Stat(old); err == nil {
			t.Error("an old page is still there")
		}
		if err := os.WriteFile(old, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBashKnowsTheCompletion(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("bash", "-c", `source "$1"; complete -p rktctl`, "bash", filepath.Join(dir, "completions/rktctl")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "__start_rktctl rktctl") {
		t.Errorf("%v: %s", err, out)
	}
	for file, begins := range map[string]string{"_rktctl": "#compdef rktctl", "rktctl.fish": "# fish completion for rktctl"} {
		text, err := os.ReadFile(filepath.Join(dir, "completions", file))
		if err != nil || !strings.HasPrefix(string(text), begins) {
			t.Errorf("%s: %v, %.40q", file, err, text)
		}
	}
}

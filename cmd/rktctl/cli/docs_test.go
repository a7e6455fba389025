package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// commandLine is a call of rktctl in a document, in a block of shell or between backquotes.
var commandLine = regexp.MustCompile("(?m)(?:^|`)rktctl ([^`#\n]*)")

func TestEveryCommandInTheDocumentsIsOneThatRktctlHas(t *testing.T) {
	for _, file := range []string{"troubleshooting.md", "metrics.md", "stage1-authors.md"} {
		text, err := os.ReadFile("../../../docs/" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := commandLine.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s has no commands: the pattern is wrong", file)
		}
		for _, m := range found {
			line, _, _ := strings.Cut(m[1], " >") // a redirection
			root := New(&Env{Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }})
			cmd, rest, err := root.Find(strings.Fields(line))
			if err != nil || cmd == root {
				t.Errorf("%s: rktctl %s: %v", file, line, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: rktctl %s: %v", file, line, err)
			}
		}
	}
}

package main

import (
	"embed"
	"fmt"
	"io"
	"strings"
)

// pages are the pages of help without the synopsis: one for each verb and one for
// rktctl.
//
//go:embed help
var pages embed.FS

func page(name string) string {
	text, err := pages.ReadFile("help/" + name + ".txt")
	if err != nil {
		panic(err) // verbs and pages are both compiled in, so every verb has its page
	}
	return string(text)
}

// help writes the page of rktctl, or of one of its verbs.
func help(e *env, words []string) error {
	if len(words) == 0 {
		writeHelp(e.stdout)
		return nil
	}
	v := find(words)
	if v == nil {
		return fmt.Errorf("no help for %q: %w", strings.Join(words, " "), errUsage)
	}
	fmt.Fprintf(e.stdout, "NAME\n    rktctl %s - %s\n\nSYNOPSIS\n    rktctl %s\n\n%s", v.name, v.summary, v.synopsis(), page(strings.ReplaceAll(v.name, " ", "-")))
	return nil
}

func writeHelp(w io.Writer) {
	fmt.Fprint(w, "NAME\n    rktctl - look at and check the stage1s of this node\n\nSYNOPSIS\n    rktctl COMMAND [ARGUMENTS]\n    rktctl help [COMMAND]\n    rktctl version\n\nCOMMANDS\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "    %-30s %s\n", v.synopsis(), v.summary)
	}
	fmt.Fprintf(w, "\n%s", page("rktctl"))
}

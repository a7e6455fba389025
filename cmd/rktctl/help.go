package main

import (
	"fmt"
	"io"
	"strings"
)

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
	fmt.Fprintf(e.stdout, "NAME\n    rktctl %s - %s\n\nSYNOPSIS\n    rktctl %s\n\n%s", v.name(), v.summary, v.synopsis, v.text)
	return nil
}

func writeHelp(w io.Writer) {
	fmt.Fprint(w, "NAME\n    rktctl - look at and check the stage1s of this node\n\nSYNOPSIS\n    rktctl COMMAND [ARGUMENTS]\n    rktctl help [COMMAND]\n    rktctl version\n\nCOMMANDS\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "    %-30s %s\n", v.synopsis, v.summary)
	}
	fmt.Fprint(w, `
EXIT STATUS
    0    done, and all is right
    1    something is wrong with what was looked at, or it could not be read
    2    the command line is wrong

ENVIRONMENT
    RKT_CONFIG    the configuration, instead of /etc/containerd-shim-rkt/config.toml.
                  The shim looks for it in containerd's environment, not in yours.

FILES
    /etc/containerd-shim-rkt/config.toml
    /etc/containerd-shim-rkt/config.toml.d/*.toml
`)
}

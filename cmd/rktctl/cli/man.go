package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// WriteMan writes the help page of a command as a manual page of section 1, for man.
func WriteMan(w io.Writer, cmd *cobra.Command, date time.Time) error {
	var help, page bytes.Buffer
	writeHelp(&help, cmd)
	fmt.Fprintf(&page, ".TH %s 1 %s \"containerd-shim-rkt-v1\"\n", strings.ToUpper(manName(cmd)), date.UTC().Format(time.DateOnly))
	// apropos and whatis read this section, in this form.
	fmt.Fprintf(&page, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	_, sections, _ := strings.Cut(help.String(), "\n\n")
	for line := range strings.Lines(sections) {
		if line = strings.TrimRight(line, "\n"); line == "" || strings.HasPrefix(line, " ") {
			fmt.Fprintln(&page, roff(strings.TrimPrefix(line, "    ")))
			continue
		}
		fmt.Fprintf(&page, ".SH %s\n.nf\n", roff(line)) // its lines are not filled
	}
	if others := neighbours(cmd); len(others) > 0 {
		fmt.Fprintf(&page, ".SH SEE ALSO\n.fi\n%s\n", roff(strings.Join(others, ", ")))
	}
	_, err := w.Write(page.Bytes())
	return err
}

// manName is the name of a command's manual page.
func manName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// neighbours lists the manual pages of the command's group and subcommands.
func neighbours(cmd *cobra.Command) (pages []string) {
	if cmd.HasParent() {
		pages = append(pages, manName(cmd.Parent())+"(1)")
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, manName(sub)+"(1)")
		}
	}
	return pages
}

// roff returns a line of text as one for roff, in which a backslash, a minus sign, and a dot or
// an apostrophe at the beginning have a meaning.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}

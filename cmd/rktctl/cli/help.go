package cli

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pages are the pages of help, in Markdown: a description, and sections such as
// "# EXIT STATUS". Name, synopsis, commands and options come from the tree of commands.
//
//go:embed help
var pages embed.FS

// page returns the text of a page, and its section of examples without its indentation.
func page(name string) (long, example string) {
	text, err := pages.ReadFile("help/" + name + ".md")
	if err != nil {
		panic(err) // verbs and pages are both compiled in, so every verb has its page
	}
	long, example, _ = strings.Cut(string(text), "\n# EXAMPLE\n")
	return strings.TrimSpace(long), strings.TrimRight(example, "\n")
}

// newHelp returns the command help.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "print the help page of a command",
		Long:                  "Prints the help page of a command. COMMAND --help does the same.",
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			c, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, sub := range c.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), begun) {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, rest, err := cmd.Root().Find(args)
			if err != nil {
				return errUsage(cmd.Root(), "%w", err)
			}
			if len(rest) > 0 {
				return errUnknown(c, rest[0])
			}
			c.InitDefaultHelpFlag()
			writeHelp(cmd.OutOrStdout(), c)
			return nil
		},
	}
}

// writeHelp writes the page of a command in the form of a manual page.
func writeHelp(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "NAME\n    %s - %s\n\nSYNOPSIS\n", cmd.CommandPath(), cmd.Short)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "    %s COMMAND [ARGUMENTS]\n", cmd.CommandPath())
		fmt.Fprintf(w, "    %s\n", strings.Replace(cmd.CommandPath(), cmd.Root().Name(), cmd.Root().Name()+" help", 1)+" [COMMAND]")
	} else {
		fmt.Fprintf(w, "    %s\n", cmd.UseLine())
	}
	description, sections := cmd.Long, ""
	if strings.HasPrefix(description, "# ") {
		description, sections = "", description
	} else if at := strings.Index(description, "\n# "); at >= 0 {
		description, sections = description[:at], description[at+1:]
	}
	if description = strings.TrimSpace(description); description != "" {
		fmt.Fprintf(w, "\nDESCRIPTION\n%s\n", indented(description))
	}
	writeCommands(w, cmd)
	writeOptions(w, cmd.Flags(), widthOf(w))
	if sections != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(strings.ReplaceAll("\n"+sections, "\n# ", "\n")))
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nEXAMPLE\n%s\n", cmd.Example)
	}
}

// writeCommands lists the subcommands of a group.
func writeCommands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	fmt.Fprint(w, "\nCOMMANDS\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			name := sub.Name()
			if sub.HasAvailableSubCommands() {
				name += " …"
			}
			fmt.Fprintf(w, "    %-16s %s\n", name, sub.Short)
		}
	}
}

// writeOptions lists options, with their descriptions beside them.
func writeOptions(w io.Writer, flags *pflag.FlagSet, width int) {
	const column = 22
	if width == 0 || width > 100 {
		width = 80
	}
	head := "\nOPTIONS\n"
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" && f.NoOptDefVal == "" {
			name += " " + value
		}
		lines := wrapped(usage, max(width-column-4, 20))
		if len(name) >= column {
			lines = append([]string{""}, lines...)
		}
		for i, line := range lines {
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(w, "%s%s\n", head, strings.TrimRight(fmt.Sprintf("    %-*s%s", column, name, line), " "))
			head = ""
		}
	})
}

// indented returns a text, each line of which begins four characters further to the right.
func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n    "), "\n    \n", "\n\n")
}

// wrapped returns the lines of a text whose lines have at most width characters, if its
// words are not longer.
func wrapped(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

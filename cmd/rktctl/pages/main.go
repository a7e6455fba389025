// Command pages writes the man pages of rktctl and the completions of its shells into a directory:
// man/man1, and completions. Both come from the tree of commands.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pages DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

// tree returns the commands of rktctl.
func tree() *cobra.Command {
	return cli.New(&cli.Env{Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }})
}

// completions are the files of the shells, by their names in the shells' directories.
var completions = map[string]func(*cobra.Command, io.Writer) error{
	"rktctl":      func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
	"_rktctl":     func(c *cobra.Command, w io.Writer) error { return c.GenZshCompletion(w) },
	"rktctl.fish": func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
}

// epoch returns the date of the pages: SOURCE_DATE_EPOCH, or today.
func epoch() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0), err
}

func write(dir string) error {
	date, err := epoch()
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	pages, scripts := filepath.Join(dir, "man/man1"), filepath.Join(dir, "completions")
	// A verb that is not there any more has no page.
	if err := errors.Join(os.RemoveAll(pages), os.RemoveAll(scripts), os.MkdirAll(pages, 0o755), os.MkdirAll(scripts, 0o755)); err != nil {
		return err
	}
	root := tree()
	if err := writeMan(pages, root, date); err != nil {
		return err
	}
	for name, generate := range completions {
		if err := writeFile(filepath.Join(scripts, name), func(w io.Writer) error { return generate(root, w) }); err != nil {
			return err
		}
	}
	return nil
}

// writeMan writes the manual pages of a command and of its subcommands.
func writeMan(dir string, cmd *cobra.Command, date time.Time) error {
	path := filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
	err := writeFile(path, func(w io.Writer) error { return cli.WriteMan(w, cmd, date) })
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			err = errors.Join(err, writeMan(dir, sub, date))
		}
	}
	return err
}

func writeFile(path string, generate func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(generate(f), f.Close())
}

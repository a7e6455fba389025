package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/log"
	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Exit codes.
const (
	exitDone  = 0
	exitWrong = 1 // a checked object is not right, or could not be checked
	exitUsage = 2 // the command line is wrong
)

// Env has the streams, the environment and the version of a call of rktctl.
type Env struct {
	Stdin          io.Reader // nil: it is empty
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Version        string
}

// errFound is returned by a verb that has found problems and has already written them.
var errFound = errors.New("not right")

// exitError is the exit code of a program that a verb has executed in an app, if the code is
// not 0. The program has written what there is to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is an error in the command line of a command.
type usageError struct {
	command string // its path, without rktctl
	why     error
}

func (e *usageError) Error() string {
	text := e.why.Error()
	if e.command != "" {
		text = e.command + ": " + text
	}
	return strings.TrimSpace(text + ": see rktctl help " + e.command)
}

func (e *usageError) Unwrap() error { return e.why }

// errUsage returns an error in the command line of a command.
func errUsage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{pathOf(cmd), fmt.Errorf(format, args...)}
}

// pathOf returns the words that select a command, without rktctl.
func pathOf(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return path
}

// New returns the tree of rktctl's commands.
func New(e *Env) *cobra.Command {
	root := group("rktctl", "look at and check the pods and the stage1s of this node")
	root.Long, root.Example = page("rktctl")
	root.Version = cmp.Or(e.Version, "unknown")
	root.Flags().BoolP("version", "v", false, "print the version of rktctl")
	root.SetVersionTemplate("rktctl {{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return errUsage(cmd, "%w", err) })
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd) })

	config := group("config", "the configuration of this node")
	config.AddCommand(newConfigCheck(e))
	image := group("image", "images of apps: the store of their trees, their specs, ACIs")
	image.AddCommand(
		newImageGC(e),
		newImageImport(e),
		newImageList(e),
		newImageRm(e),
		newImageSpec(e),
	)
	stage1 := group("stage1", "stage1s: images, the tree store, the check of an image")
	stage1.AddCommand(
		newStage1Call(e),
		newStage1GC(e),
		newStage1Import(e),
		newStage1Init(e),
		newStage1List(e),
		newStage1Show(e),
		newStage1Verify(e),
	)
	root.AddCommand(
		config,
		image,
		newApp(e),
		newAttach(e),
		newCatManifest(e),
		newDebug(e),
		newDoctor(e),
		newEnter(e),
		newEvents(e),
		newExec(e),
		newGC(e),
		newInspect(e),
		newList(e),
		newLogs(e),
		newMetrics(e),
		newPrepare(e),
		newPs(e),
		newReport(e),
		newRm(e),
		newRun(e),
		newRunPrepared(e),
		newStatus(e),
		newStop(e),
		newTop(e),
		newVersion(e),
		newWhy(e),
		stage1,
	)
	root.SetHelpCommand(newHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Short = "print a script with which a shell completes commands and options"
		}
	}
	return root
}

// Run executes a command line and returns the exit code.
func Run(ctx context.Context, e *Env, args []string) int {
	// Drop what stage 0 and ttrpc log: the results, the errors and the pod's journal have it, and
	// the output of a program in a pod must not be mixed with it.
	log.L.Logger.SetOutput(io.Discard)
	root := New(e)
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of this process
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errFound):
		return exitWrong
	}
	var exit exitError
	if errors.As(err, &exit) {
		return int(exit)
	}
	fmt.Fprintf(e.Stderr, "rktctl: %s\n", abi.Printable(err.Error()))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitWrong
}

// group returns a command that does nothing without one of its subcommands.
func group(name, summary string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: summary,
		Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errUnknown(cmd, args[0])
			}
			writeHelp(cmd.ErrOrStderr(), cmd)
			return errUsage(cmd, "no command")
		},
	}
}

// errUnknown is the error for a word that is no subcommand of a group. It names the
// subcommands that may have been meant.
func errUnknown(cmd *cobra.Command, word string) error {
	if meant := cmd.SuggestionsFor(word); len(meant) > 0 {
		return errUsage(cmd, "unknown command %q, meant is perhaps %s", word, strings.Join(meant, " or "))
	}
	return errUsage(cmd, "unknown command %q", word)
}

// verb returns a command with its page of help, which has the name of the command's path
// with dashes. The caller sets RunE.
func verb(name, use, summary string, args cobra.PositionalArgs) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: summary, Args: args, DisableFlagsInUseLine: true}
	cmd.Long, cmd.Example = page(name)
	return cmd
}

// takes returns a check of the number of arguments. words say which arguments a command
// has: "one IMAGE".
func takes(least, most int, words string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return errUsage(cmd, "%s, and not %d", words, len(args))
		}
		return nil
	}
}

// none is a command without arguments.
var none = takes(0, 0, "no arguments")

// Command rktctl is the command line of a node's operator: it shows and checks stage1s and
// the configuration.
//
// It needs no shim: it reads the configuration and the images as the shim does. Only
// `stage1 import` of an image in containerd's store needs a containerd. Each verb has a
// file of its own in this package, and a page in the directory help. The function verbs
// lists the verbs.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// version is set at link time, by -ldflags "-X main.version=…".
var version string

// Exit codes.
const (
	exitDone  = 0
	exitWrong = 1 // a checked object is not right, or could not be checked
	exitUsage = 2 // the command line is wrong
)

// verb is a subcommand of rktctl. Its page of help says more.
type verb struct {
	name      string // config check
	arguments string
	summary   string // one line
	run       func(ctx context.Context, e *env, args []string) error
}

func (v *verb) words() []string  { return strings.Fields(v.name) }
func (v *verb) synopsis() string { return v.name + " " + v.arguments }

// env has the streams and the environment of a verb.
type env struct {
	stdout, stderr io.Writer
	getenv         func(string) string
}

// errUsage is wrapped by errors in the command line.
var errUsage = errors.New("see rktctl help")

// errFound is returned by a verb that has found problems and has already written them.
var errFound = errors.New("not right")

func verbs() []*verb {
	return []*verb{
		{"config check", "[FILE]", "find what is wrong in the configuration, before a pod does", runConfigCheck},
		{"stage1 list", "[--json]", "list the stage1s of this node, with their digests", runStage1List},
		{"stage1 import", "[OPTIONS] SOURCE", "bring a stage1 image into the tree store, by its digest", runStage1Import},
		{"stage1 gc", "[OPTIONS]", "remove the trees of stage1s that nothing leads to any more", runStage1GC},
		{"stage1 init", "[--example NAME] DIR", "write the skeleton of a stage1 of your own", runStage1Init},
		{"stage1 verify", "[OPTIONS] IMAGE", "find out whether a stage1 keeps the ABI, by running it (as root)", runStage1Verify},
	}
}

func main() {
	if launch.Asked(os.Args) { // stage1 verify started this process, as the launcher of an immutable pod
		os.Exit(launch.Main())
	}
	conformance.Program(os.Args, doors()...) // runs, and does not return, if stage1 verify started this process in a pod
	proc.SealDescriptors()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, &env{os.Stdout, os.Stderr, os.Getenv}, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, e *env, args []string) int {
	err := dispatch(ctx, e, args)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errFound):
		return exitWrong
	}
	fmt.Fprintf(e.stderr, "rktctl: %s\n", abi.Printable(err.Error()))
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitWrong
}

func dispatch(ctx context.Context, e *env, args []string) error {
	if len(args) == 0 {
		writeHelp(e.stderr)
		return fmt.Errorf("no command: %w", errUsage)
	}
	switch args[0] {
	case "help", "-h", "--help":
		return help(e, args[1:])
	case "version", "-v", "--version":
		fmt.Fprintf(e.stdout, "rktctl %s\n", cmp.Or(version, "unknown"))
		return nil
	}
	v := find(args)
	if v == nil {
		return fmt.Errorf("unknown command %q: %w", strings.Join(args, " "), errUsage)
	}
	rest := args[len(v.words()):]
	if slices.ContainsFunc(rest, func(a string) bool { return a == "-h" || a == "--help" }) {
		return help(e, v.words())
	}
	return v.run(ctx, e, rest)
}

// find returns the verb at the beginning of a command line, or nil.
func find(args []string) *verb {
	for _, v := range verbs() {
		if n := len(v.words()); len(args) >= n && slices.Equal(args[:n], v.words()) {
			return v
		}
	}
	return nil
}

// Command client has the command line of an OCI runtime and works through containerd: each
// verb makes calls to containerd, with the shim that is tested. The command has no state of
// its own; the bundle's path is a label of the container.
//
//	client create [--bundle DIR] [--pid-file FILE] ID
//	client start ID
//	client state ID
//	client kill ID [SIGNAL]
//	client delete ID
//	client exec --process FILE ID
//	client update --resources FILE ID
//
// Environment variables select the containerd, the namespace and the shim: see connect.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	containerd "github.com/containerd/containerd/v2/client"
)

// Environment variables.
const (
	addressVariable   = "OCI_ADDRESS"   // of containerd's socket
	namespaceVariable = "OCI_NAMESPACE" // of containerd's
	runtimeVariable   = "OCI_RUNTIME"   // as clients of containerd name it
)

// verb is one command. If err is nil, code is the exit code of this process.
type verb func(ctx context.Context, client *containerd.Client, args []string) (code int, err error)

var verbs = map[string]verb{
	"create": create,
	"start":  start,
	"state":  state,
	"kill":   kill,
	"delete": remove,
	"exec":   execute,
	"update": update,
}

func main() {
	code, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (code int, err error) {
	if len(args) == 0 || verbs[args[0]] == nil {
		return 0, fmt.Errorf("create, start, state, kill, delete, exec or update: %q", args)
	}
	client, err := connect()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	code, err = verbs[args[0]](ctx, client, args[1:])
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
	}
	return code, err
}

func connect() (*containerd.Client, error) {
	return containerd.New(os.Getenv(addressVariable),
		containerd.WithDefaultNamespace(os.Getenv(namespaceVariable)),
		containerd.WithDefaultRuntime(os.Getenv(runtimeVariable)))
}

// parse reads the flags of a verb, the id that follows them, and the arguments after the id.
func parse(flags *flag.FlagSet, args []string) (id string, rest []string, err error) {
	if err := flags.Parse(args); err != nil {
		return "", nil, err
	}
	if flags.NArg() == 0 || flags.Arg(0) == "" {
		return "", nil, errors.New("the id of the container is missing")
	}
	return flags.Arg(0), flags.Args()[1:], nil
}

func newFlags(verb string) *flag.FlagSet { return flag.NewFlagSet(verb, flag.ContinueOnError) }

// find returns the task of the id that is the only argument.
func find(ctx context.Context, client *containerd.Client, verb string, args []string) (containerd.Container, containerd.Task, error) {
	id, _, err := parse(newFlags(verb), args)
	if err != nil {
		return nil, nil, err
	}
	return load(ctx, client, id)
}

func load(ctx context.Context, client *containerd.Client, id string) (containerd.Container, containerd.Task, error) {
	container, err := client.LoadContainer(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	task, err := container.Task(ctx, nil)
	return container, task, err
}

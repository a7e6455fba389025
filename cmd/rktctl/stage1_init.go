package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

func runStage1Init(_ context.Context, e *env, args []string) error {
	example := conformance.Runc
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar((*string)(&example), "example", string(example), "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("stage1 init: %v: %w", err, errUsage)
	}
	if args = flags.Args(); len(args) != 1 {
		return fmt.Errorf("stage1 init: one DIR, and not %d: %w", len(args), errUsage)
	}
	if all := conformance.Examples(); !slices.Contains(all, example) {
		return fmt.Errorf("stage1 init: no example has the name %q; the examples are %q: %w", example, all, errUsage)
	}
	if err := conformance.WriteSkeleton(args[0], example); err != nil {
		return fmt.Errorf("stage1 init: %w", err)
	}
	for _, f := range conformance.Skeleton(example) {
		fmt.Fprintln(e.stdout, f.Path)
	}
	return nil
}

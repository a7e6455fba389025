package main

import (
	"context"
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

func stage1Init() *verb {
	return &verb{
		words:    []string{"stage1", "init"},
		synopsis: "stage1 init DIR",
		summary:  "write the skeleton of a stage1 of your own",
		text: `DESCRIPTION
    Makes the directory DIR, or fills it if it is empty, with the image that
    docs/stage1-authors.md writes step by step: a stage1 in POSIX sh that runs pods
    by runc, to be changed into one of yours.

EXIT STATUS
    0    the image is there
    1    DIR is not empty, or could not be written
    2    the command line is wrong

EXAMPLE
    $ rktctl stage1 init mine
    $ rktctl stage1 verify ./mine
`,
		run: func(_ context.Context, e *env, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("stage1 init: one DIR, and not %d: %w", len(args), errUsage)
			}
			if err := conformance.WriteSkeleton(args[0]); err != nil {
				return fmt.Errorf("stage1 init: %w", err)
			}
			for _, f := range conformance.Skeleton() {
				fmt.Fprintln(e.stdout, f.Path)
			}
			return nil
		},
	}
}

package main

import (
	"context"
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

func runStage1Init(_ context.Context, e *env, args []string) error {
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
}

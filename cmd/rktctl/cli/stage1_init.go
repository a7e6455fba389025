package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

func newStage1Init(e *Env) *cobra.Command {
	cmd := verb("stage1-init", "init [--example NAME] DIR", "write the skeleton of a stage1 of your own", takes(1, 1, "one DIR"))
	name := cmd.Flags().String("example", string(conformance.Runc),
		"the `NAME` of an image: runc; or bubblewrap, the image of docs/stage1-bubblewrap.md, for programs that create and start a sandbox in one step")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		example := conformance.Example(*name)
		if all := conformance.Examples(); !slices.Contains(all, example) {
			return errUsage(cmd, "no example has the name %q; the examples are %q", example, all)
		}
		if err := conformance.WriteSkeleton(args[0], example); err != nil {
			return fmt.Errorf("stage1 init: %w", err)
		}
		for _, f := range conformance.Skeleton(example) {
			fmt.Fprintln(e.Stdout, f.Path)
		}
		return nil
	}
	return cmd
}

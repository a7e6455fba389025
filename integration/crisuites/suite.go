package main

import (
	"context"
	"fmt"
	"io"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// suite is one of others.
type suite struct {
	// program makes the directory of the suite's program.
	program func(ctx context.Context, log io.Writer) (string, error)
	// programs are those of this module that its images have.
	programs []string
	// images are those that it pulls.
	images func() ([]image.Image, error)
	// prepare makes, in the enclosure, what the suite expects of a machine, and may
	// change how the node is to be.
	prepare func(o *node.Options, h node.Handler) error
	// command is how it is run: its arguments, the program first.
	command func(n *node.Node, handler string, o options) []string
	// report reads its results, which is reportFile or outputFile.
	report  func(handler, file string) (report, error)
	results string
	// exceptions are tests that need not pass with ours though they do with runc, by
	// handler and name, and why.
	exceptions map[string]string
}

func suiteNamed(name string) (suite, error) {
	switch name {
	case "critest":
		return critest(), nil
	case "containerd":
		return containerdSuite(), nil
	default:
		return suite{}, fmt.Errorf("unknown suite %q: critest or containerd", name)
	}
}

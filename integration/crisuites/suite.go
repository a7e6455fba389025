package main

import (
	"context"
	"fmt"
	"io"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// suite is a suite of another project.
type suite struct {
	// program makes the directory of the suite's program.
	program func(ctx context.Context, log io.Writer) (string, error)
	// programs are the programs of this module that its images contain.
	programs []string
	// images are the images that the suite pulls.
	images func() ([]image.Image, error)
	// prepare makes, in the enclosure, the files that the suite expects on a machine, and may
	// change the options of the node.
	prepare func(o *node.Options, h node.Handler) error
	// command returns the suite's arguments, the program first.
	command func(n *node.Node, handler string, o options) []string
	// report reads the results from reportFile or outputFile.
	report  func(handler, file string) (report, error)
	results string
	// exceptions are tests that pass with runc and need not pass with our shim, by handler and
	// name, with the reason.
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

package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// featureChecks check the features that a stage1 reports by features/probe.
func featureChecks() []Check {
	return []Check{
		{
			ID: "features/probe", Level: LevelRun, Section: "5 features/probe", Sentence: "the answer is a features document with its files, in time, and the same twice",
			needs: []abi.Entrypoint{abi.FeaturesProbe}, run: checkProbe,
		},
	}
}

// checkProbe probes the image a second time, with a store of its own, and
// compares the answers.
func checkProbe(ctx context.Context, t *trial) error {
	images := must(image.OpenStore(t.dir))
	var answers [2][]string
	for n, i := range []*image.Image{must(t.images.Image(ctx, t.config.Image, "")), t.image} {
		with, _, err := stage1.Probe(ctx, images, i, i.Name(), t.children)
		if errdefs.IsNotImplemented(err) {
			return &cannotError{err}
		}
		if err != nil {
			return err
		}
		answers[n], _ = with.Fields()
		if n == 0 {
			images = must(image.OpenStore(t.dir + "/again"))
		}
	}
	if !slices.Equal(answers[0], answers[1]) {
		return fmt.Errorf("it declares %q, and then %q", answers[0], answers[1])
	}
	return nil
}

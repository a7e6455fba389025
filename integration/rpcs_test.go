package integration

import (
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/rpcs"
)

func TestEveryRPCInEveryStateIsAnsweredAsRuncsShimDoes(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		theirs, err := rpcs.OfRunc()
		if err != nil {
			t.Fatal(err)
		}
		ours, err := rpcs.Ask(c.context(t), rpcs.Rig{
			Client: c.client, Image: c.image(t, c.client), Runtime: c.runtime,
			Args: []string{"testprog", "sleep", "600"}, Bundle: c.daemon.Bundle, Prefix: c.id() + "-",
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range rpcs.Compare(theirs, ours) {
			t.Error(problem)
		}
	})
}

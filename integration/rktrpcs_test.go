package integration

import (
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/rpcs"
)

func TestImagesOfRktsAnswerInEveryState(t *testing.T) {
	needLong(t)
	eachOfBoth(t, func(t *testing.T, n *rktNode) { n.answersInEveryState(t) })
}

func TestRktsFlyAnswersInEveryState(t *testing.T) {
	needLong(t)
	ofRkt(t, []string{"fly"}, func(t *testing.T, n *node) { n.answersInEveryState(t) })
}

func TestRktsNspawnAnswersInEveryState(t *testing.T) {
	needLong(t)
	ofRkt(t, nspawns, func(t *testing.T, n *node) { n.answersInEveryState(t) })
}

// answersInEveryState sends every call to tasks and execs in all of their states, a case for
// each call. The answers are those of runc's shim.
func (n *node) answersInEveryState(t *testing.T) {
	t.Helper()
	theirs, err := rpcs.OfRunc()
	must(t, err)
	ours, err := rpcs.Ask(n.context(t), rpcs.Rig{
		Client: n.client, Image: n.image(t, n.client), Runtime: n.runtime,
		Args: []string{"testprog", "sleep", "600"}, Bundle: n.daemon.Bundle, Prefix: n.id() + "-",
	})
	if err != nil {
		t.Error(err)
	}
	for _, call := range rpcs.Calls() {
		t.Run(call, func(t *testing.T) {
			for _, problem := range rpcs.Compare(theirs, ours, call) {
				t.Error(problem)
			}
		})
	}
}

// needLong skips a case that takes minutes for each image, with hundreds of containers.
func needLong(t *testing.T) {
	t.Helper()
	if !*longFlag {
		t.Skip("every call in every state, of each image, takes half an hour: make test-long")
	}
}

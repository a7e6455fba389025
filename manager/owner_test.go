package manager

import (
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
)

// requirements.md#R4
func TestDeleteEndsAServerWhoseContainerWasNeverCreated(t *testing.T) {
	d := newDaemon(t)
	pid := connect(t, d.start24("ns", "c1", nil)).shimPID()
	d.deleted("ns", "c1")
	ended(t, pid)
}

// Another container of the group may be about to be created.
func TestDeleteOfAContainerThatWasNeverCreatedLeavesAnothersServerAlone(t *testing.T) {
	d := newDaemon(t)
	group := map[string]string{annotation.Group: "pod1"}
	c := connect(t, d.start24("ns", "c1", group))
	d.start24("ns", "c2", group)
	d.deleted("ns", "c2")
	c.create("c1")
	d.deleted("ns", "c2")
	if !c.has("c1") {
		t.Error("c1 has gone")
	}
}

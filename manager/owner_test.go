package manager

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
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

// containerd waits five seconds for each server when it starts. It gives up on one that is stopped, or
// that the node has no time for, and nothing but `delete` speaks to that server again.
func TestAServerThatAnswersAfterDeleteHasGivenUpIsAskedAgain(t *testing.T) {
	d := newDaemon(t)
	c := connect(t, d.start24("ns", "c1", nil))
	c.create("c1")
	server, err := os.FindProcess(c.shimPID())
	if err != nil {
		t.Fatal(err)
	}
	finished := filepath.Join(t.TempDir(), "finished")
	d.plan("ns", "c1", collectPlan{Exit: Exit{Status: 137, At: time.Unix(1, 0), Rest: finished}})
	if err := errors.Join(server.Signal(unix.SIGSTOP), os.WriteFile(finished+mayFinish, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	d.deleted("ns", "c1")
	if exists(finished) {
		t.Error("the rest was done beside a server that may go on")
	}
	if err := server.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ended(t, server.Pid)
	wait.Until(t, "the rest is done", func() bool {
		hangs, err := os.ReadFile(finished)
		return err == nil && string(hangs) == "false"
	})
}

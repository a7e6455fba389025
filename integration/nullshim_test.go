package integration

import (
	"os/exec"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// The shim above an empty pod, with which make bench compares, answers what the benchmark asks for.
func TestTheEmptyShimLivesAsTheBenchmarkExpects(t *testing.T) {
	aside(t, func(t *testing.T, c *column) {
		if _, err := exec.LookPath("go"); err != nil {
			t.Skip("it is built here, and this machine has no go")
		}
		if err := binaries.NullShim(c.context(t), suite.shims); err != nil {
			t.Fatal(err)
		}
		n := c.asideNode(t)
		const runtime = "io.containerd.null.v1"
		n.ctr(t, "run", "--rm", "--runtime", runtime, "--fifo-dir", n.fifoDir(nil), image.BusyboxName, n.id(), "true").must(t)
		id := n.id()
		n.ctr(t, "run", "--detach", "--runtime", runtime, "--fifo-dir", n.fifoDir(nil), image.BusyboxName, id, "sleep", "1000").must(t)
		n.ctr(t, "task", "exec", "--exec-id", "e", "--fifo-dir", n.fifoDir(nil), id, "true").must(t)
		n.ctr(t, "task", "kill", "--signal", "SIGKILL", id).must(t)
		n.awaitStopped(t, id)
		n.deleteTask(t, id, 137)
		n.ctr(t, "container", "delete", id).must(t)
	})
}

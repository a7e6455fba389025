package integration

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// If a container has its maximum number of processes, the error of an exec says so, and nothing
// of the exec is left.
func TestAnExecInAContainerAtItsLimitOfProcesses(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		// An OCI runtime needs some threads in the container before it executes the program.
		fill := "i=1; while [ $i -lt 30 ]; do sleep 1000 & i=$((i+1)); done; wait"
		task := c.running(t, []string{"sh", "-c", fill}, oci.WithPidsLimit(30))
		wait.Observe(t, "the container is full", func() (bool, string) {
			n := pidsCurrent.read(t, task.Pid())
			return n == "30", n
		})
		for range 3 {
			exec, err := task.Exec(ctx, "e", process(t, ctx, task, "true"), cio.NullIO)
			if err != nil {
				t.Fatal(err)
			}
			if err := exec.Start(ctx); err == nil || !strings.Contains(err.Error(), "limit of 30 processes: resource temporarily unavailable") {
				t.Errorf("start: %v", err)
			}
			if n := pidsCurrent.read(t, task.Pid()); n != "30" {
				t.Errorf("%s processes after the failed exec", n)
			}
			deleteTask(t, ctx, exec)
		}
	})
}

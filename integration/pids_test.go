package integration

import (
	"fmt"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// An exec enters a container that has no place for a further process, and its program cannot fork there. An OCI
// runtime needs some threads in the container before it executes the program, so with one an exec may fail.
func TestAnExecInAContainerAtItsLimitOfProcesses(t *testing.T) {
	ids := []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}
	ptrace := oci.WithAddedCapabilities([]string{"CAP_SYS_PTRACE"})
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		for name, opts := range map[string][]oci.SpecOpts{
			"root": nil, "SYS_PTRACE": {ptrace}, "a user": {oci.WithUserID(1000)}, "a user, SYS_PTRACE": {oci.WithUserID(1000), ptrace},
			"user namespace": {oci.WithUserNamespace(ids, ids)}, "user namespace, SYS_PTRACE": {oci.WithUserNamespace(ids, ids), ptrace},
		} {
			if c.name == "nspawn" && strings.HasPrefix(name, "user namespace") {
				continue
			}
			for limit := int64(1); limit <= 2; limit++ {
				task := c.running(t, []string{"sleep", "1000"}, opts...)
				must(t, task.Update(ctx, containerd.WithResources(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &limit}})))
				var out streams
				e, err := task.Exec(ctx, "e", process(t, ctx, task, "sh", "-c", "echo works; sleep 0 & sleep 0 & echo forks"), out.creator(c, nil))
				must(t, err)
				exited := c.wait(t, e)
				started := e.Start(ctx)
				if started == nil {
					<-exited
				}
				deleteTask(t, ctx, e) // waits for the output
				switch {
				case started == nil && out.stdout.String() != "works\n":
					t.Errorf("%s, limit %d: %q %q", name, limit, out.stdout.String(), out.stderr.String())
				case started != nil && unified() && strings.HasSuffix(name, "SYS_PTRACE") && !strings.HasPrefix(name, "user namespace"):
					// It would be outside of each limit until it is moved, and a tracer could keep it there.
				case started != nil && (c.name == "oci" || c.name == "runc"):
					t.Logf("%s, limit %d: %v", name, limit, started)
				case started != nil:
					t.Errorf("%s, limit %d: %v", name, limit, started)
				}
				wait.Observe(t, "one process is left", func() (bool, string) {
					n := pidsCurrent.read(t, task.Pid())
					return n == "1", n
				})
				c.end(t, task)
			}
		}
	})
}

// People end a fork bomb by an exec.
func TestAnExecEndsAContainerFullOfProcesses(t *testing.T) {
	eachOf(t, []string{"native", "nspawn", "runc"}, func(t *testing.T, c *column) {
		ctx := c.context(t)
		fill := "i=1; while [ $i -lt 30 ]; do sleep 1000 & i=$((i+1)); done; wait; exit 7"
		task := c.running(t, []string{"sh", "-c", fill}, oci.WithPidsLimit(30))
		exited := c.wait(t, task)
		wait.Observe(t, "the container is full", func() (bool, string) {
			n := pidsCurrent.read(t, task.Pid())
			return n == "30", n
		})
		for n := 0; ; n++ {
			e, err := task.Exec(ctx, fmt.Sprintf("e%d", n), process(t, ctx, task, "sh", "-c", "kill -9 -1"), cio.NullIO)
			must(t, err)
			if err = e.Start(ctx); err == nil {
				break
			}
			if c.name != "runc" || n == 20 {
				t.Fatal(err)
			}
			deleteTask(t, ctx, e)
		}
		expectExit(t, exited, 7)
	})
}

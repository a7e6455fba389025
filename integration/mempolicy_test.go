package integration

import (
	"context"
	"os"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// runc honours it since 1.4, which the columns of runc and oci do not have.
func TestTheMemoryPolicyOfTheSpecIsThatOfContainersAndExecs(t *testing.T) {
	if _, err := os.Stat("/proc/self/numa_maps"); err != nil {
		t.Skip("this kernel has no memory policies")
	}
	eachOf(t, []string{"native", "nspawn"}, func(t *testing.T, c *column) {
		binds := func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
			s.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0"}
			return nil
		}
		const bound = "grep -q ' bind:0 ' /proc/self/numa_maps && ! grep -q ' default ' /proc/self/numa_maps"
		task := c.running(t, []string{"sh", "-c", bound + " && exec sleep 1000"}, binds)
		ctx := c.context(t)
		exec, err := task.Exec(ctx, "e", process(t, ctx, task, "sh", "-c", bound), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		expectStatus(t, ctx, task, containerd.Running)
	})
}

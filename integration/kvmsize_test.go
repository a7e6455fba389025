package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// A machine has its own size and that of the limits of its containers, docs/stage1-kvm.md.
func TestTheSizeOfAMachineFollowsTheLimitsOfItsContainers(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		pod := group("group-" + c.id())
		first := c.running(t, []string{"testprog", "sleep", "1000"}, pod, oci.WithAnnotations(map[string]string{"io.containerd.rkt.v1/kvm.memory": "512Mi"}))
		memory := func() (kB int64) {
			for line := range strings.Lines(c.exec(t, nil, first.ID(), "cat", "/proc/meminfo").must(t).stdout) {
				if n, err := fmt.Sscanf(line, "MemTotal: %d kB", &kB); n == 1 && err == nil {
					return kB
				}
			}
			t.Fatal("the machine does not know its memory")
			return 0
		}
		before := memory()
		if before > 512<<10 || before < 400<<10 {
			t.Errorf("a machine of 512 MiB has %d kB", before)
		}
		// Added memory is all the kernel's to give away; lists of it may be in memory that was there.
		expect := func(when, cpus string, added int64) {
			t.Helper()
			if got := strings.TrimSpace(c.exec(t, nil, first.ID(), "nproc").must(t).stdout); got != cpus {
				t.Errorf("%s: the machine has %s processors, want %s", when, got, cpus)
			}
			wait.Observe(t, when+": the memory of the machine", func() (bool, string) {
				got := (memory() - before) >> 10
				return got <= added && got >= added*9/10, fmt.Sprintf("%d MiB more, want %d", got, added)
			})
		}
		expect("one container without limits", "1", 0)
		// The kubelet asks for this where the node has cgroup version 2.
		unified := func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
			s.Linux.Resources.Unified = map[string]string{"memory.oom.group": "1"}
			s.Mounts = append(s.Mounts, specs.Mount{Type: "cgroup", Source: "cgroup", Destination: "/sys/fs/cgroup", Options: []string{"ro"}})
			return nil
		}
		limit, quota, period := int64(256<<20), int64(150_000), uint64(100_000)
		second := c.running(t, []string{"testprog", "sleep", "1000"}, pod, oci.WithMemoryLimit(uint64(limit)), oci.WithCPUCFS(quota, period), unified)
		if got := c.exec(t, nil, second.ID(), "sh", "-c", "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.oom.group").must(t).stdout; got != "1\n" {
			t.Errorf("memory.oom.group is %q", got)
		}
		if got := strings.TrimSpace(c.exec(t, nil, second.ID(), "nproc").must(t).stdout); got != "3" {
			t.Errorf("the container finds %s processors when it starts", got)
		}
		expect("a second container", "3", 256)
		limit, quota = 128<<20, 50_000
		if err := second.Update(c.context(t), containerd.WithResources(&specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: &limit}, CPU: &specs.LinuxCPU{Quota: &quota, Period: &period},
		})); err != nil {
			t.Fatal(err)
		}
		expect("lower limits", "2", 128)
		if f := readFigures(t, c, second); f.limit != uint64(limit) || f.processes == 0 || f.memory == 0 || f.memory > f.limit {
			t.Errorf("the container has %+v", f)
		}
		c.killAndDrop(t, second)
		expect("after the second container", "1", 0)
	})
}

func TestASizeThatAMachineCannotHaveIsRefusedWithItsReason(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		for key, want := range map[string]string{
			"kvm.cpus=4":     `annotation io.containerd.rkt.v1/kvm.cpus: "4" is not a number of processors from 1 to 3`,
			"kvm.memory=1Mi": `annotation io.containerd.rkt.v1/kvm.memory: "1Mi" is not a size in MiB or GiB from 128Mi to `,
			"kvm.cpu=1":      `did you mean "io.containerd.rkt.v1/kvm.cpus"?`,
		} {
			r := c.run(t, []string{"--annotation", "io.containerd.rkt.v1/" + key}, c.id(), "true")
			if r.code == 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: %d, %s", key, r.code, r.stderr)
			}
		}
		c.expectNothingLeft(t)
	})
}

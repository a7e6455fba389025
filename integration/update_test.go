package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// cgroupFile names a file in each version of cgroups.
type cgroupFile struct{ controller, v1, v2 string }

var (
	memoryLimit = cgroupFile{"memory", "memory.limit_in_bytes", "memory.max"}
	pidsLimit   = cgroupFile{"pids", "pids.max", "pids.max"}
	cpuSet      = cgroupFile{"cpuset", "cpuset.cpus", "cpuset.cpus"}
	pidsCurrent = cgroupFile{"pids", "pids.current", "pids.current"}
)

// read returns the contents of a file in the cgroup of a process.
func (f cgroupFile) read(t *testing.T, pid uint32) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	for line := range strings.Lines(string(b)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for name := range strings.SplitSeq(fields[1], ",") {
			if name == f.controller {
				path = filepath.Join("/sys/fs/cgroup", name, fields[2], f.v1)
			}
		}
		if fields[1] == "" && path == "" {
			path = filepath.Join("/sys/fs/cgroup", fields[2], f.v2)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (f cgroupFile) expect(t *testing.T, task containerd.Task, want string) {
	t.Helper()
	if got := f.read(t, task.Pid()); got != want {
		t.Errorf("%s of %s is %s, want %s", f.v2, task.ID(), got, want)
	}
}

// requirements.md#T12
func TestUpdate(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		limit, pids, one := int64(64<<20), int64(50), "0"
		task := c.task(t, []string{"testprog", "sleep", "1000"}, oci.WithMemoryLimit(uint64(limit)), oci.WithPidsLimit(40))
		update := func(res *specs.LinuxResources) {
			t.Helper()
			if err := task.Update(ctx, containerd.WithResources(res)); err != nil {
				t.Error(err)
			}
		}
		memoryLimit.expect(t, task, "67108864")
		limit = 96 << 20
		update(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})
		memoryLimit.expect(t, task, "100663296")
		pidsLimit.expect(t, task, "40")
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		update(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}, CPU: &specs.LinuxCPU{Cpus: one}})
		pidsLimit.expect(t, task, "50")
		cpuSet.expect(t, task, "0")
		memoryLimit.expect(t, task, "100663296")
		if err := task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		limit = 48 << 20
		update(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})
		memoryLimit.expect(t, task, "50331648")
		if err := task.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		if err := task.Update(ctx, containerd.WithResources(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}})); err == nil {
			t.Error("a stopped task was updated")
		}
	})
}

// With runc the new limit of processes stays.
// requirements.md#C3
func TestAnUpdateThatFailsChangesNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		pids := int64(50)
		task := c.running(t, []string{"testprog", "sleep", "1000"}, oci.WithPidsLimit(40))
		err := task.Update(ctx, containerd.WithResources(&specs.LinuxResources{
			Pids: &specs.LinuxPids{Limit: &pids}, CPU: &specs.LinuxCPU{Cpus: "4000"},
		}))
		if err == nil || !strings.Contains(err.Error(), "cpuset.cpus") {
			t.Errorf("update: %v", err)
		}
		pidsLimit.expect(t, task, "40")
	})
}

// requirements.md#T8
func TestCheckpointIsRefusedWithTheReason(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		if _, err := task.Checkpoint(ctx); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "app/checkpoint") {
			t.Errorf("checkpoint: %v", err)
		}
		expectStatus(t, ctx, task, containerd.Running)
	})
}

package integration

import (
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/typeurl/v2"
)

// figures are the values that clients read, with either version of cgroups.
type figures struct{ processes, cpu, memory, limit, kills uint64 }

func readFigures(t *testing.T, c *column, task containerd.Task) figures {
	t.Helper()
	m, err := task.Metrics(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	data, err := typeurl.UnmarshalAny(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	switch s := data.(type) {
	case *v1.Metrics:
		return figures{s.Pids.Current, s.CPU.Usage.Total, s.Memory.Usage.Usage, s.Memory.Usage.Limit, s.GetMemoryOomControl().GetOomKill()}
	case *v2.Metrics:
		return figures{s.Pids.Current, s.CPU.UsageUsec, s.Memory.Usage, s.Memory.UsageLimit, s.GetMemoryEvents().GetOomKill()}
	}
	t.Fatalf("metrics of type %T", data)
	return figures{}
}

// requirements.md#T14
func TestMetricsOfARunningAndOfADeletedTask(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "fork", "1"}, oci.WithMemoryLimit(64<<20))
		f := readFigures(t, c, task)
		if f.processes == 0 || f.cpu == 0 || f.memory == 0 || f.limit != 64<<20 || f.kills != 0 {
			t.Errorf("%+v", f)
		}
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
			t.Fatal(err)
		}
		if _, err := task.Metrics(ctx); err == nil { // containerd reports only that there are no metrics
			t.Error("metrics of a deleted task")
		}
	})
}

// requirements.md#C4
func TestMetricsTellOfTheOOMUntilTheTaskIsDeleted(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		task := c.task(t, []string{"testprog", "allocate", "64"}, oci.WithMemoryLimit(32<<20))
		exited := c.wait(t, task)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		if f := readFigures(t, c, task); f.kills == 0 {
			t.Errorf("%+v", f)
		}
	})
}

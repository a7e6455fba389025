package integration

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
)

// worstRatio is the highest accepted ratio of the memory of containers in pods of their own to
// the same with runc's shims. The budget of docs/performance.md is lower, and make bench compares
// with it. Here is a margin for busy machines, where other processes may share the pages of runc's
// programs.
const worstRatio = 1.0

// Anonymous memory of the processes of a pod at rest, in bytes, whose only container has just started. A
// server has within a tenth of what was measured with cgroup version 1, as the median of ten. Other kernels
// and supervisors, of which some have a thread more, have a bound.
const (
	freshServer         = 165e4
	mostFreshServer     = 20e5
	mostFreshSupervisor = 11e5
)

// The memory of a container beside its own processes has a budget, relative to runc's shim on
// the same machine (containerd#7878, containerd#2020). Shared pages count in proportion.
func TestMemoryOfPodsKeepsToItsBudget(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		counts := []int{10}
		if *longFlag {
			counts = append(counts, 100)
		}
		for _, n := range counts {
			ours := c.overheadOf(t, "Pss", c.runtime, n)
			runcs := c.overheadOf(t, "Pss", runcsShim, n)
			t.Logf("%d containers: %.1f MB each, with runc's shim %.1f MB", n, perMB(ours, n), perMB(runcs, n))
			if float64(ours) > worstRatio*float64(runcs) {
				t.Errorf("%d containers cost %.1f MB each, with runc's shim %.1f MB", n, perMB(ours, n), perMB(runcs, n))
			}
		}
		// Private memory only: other shims, which share the file's pages, may end between the
		// two measurements.
		one := c.overheadOf(t, "Pss_Anon", c.runtime, 1)
		ten := c.overheadOf(t, "Pss_Anon", c.runtime, 10, group("group-"+c.id()))
		t.Logf("anonymous memory of ten in one pod: %.1f MB, of one: %.1f MB", perMB(ten, 1), perMB(one, 1))
		if ten > 3*one {
			t.Errorf("ten containers in one pod cost %.1f MB, one costs %.1f MB", perMB(ten, 1), perMB(one, 1))
		}
	})
}

// Anonymous memory hardly depends on what else the machine does, so it is compared with what was
// measured. A server that has become smaller by a tenth gets a smaller figure.
func TestFreshPodsHaveAsMuchMemoryAsMeasured(t *testing.T) {
	if thp, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err == nil && strings.Contains(string(thp), "[always]") {
		t.Skip("this kernel gives every process huge pages, and it was measured without them")
	}
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		const n = 10
		var servers, supervisors []int
		for range n {
			task := c.running(t, []string{"testprog", "sleep", "1000"})
			defer c.killAndDrop(t, task)
			server := c.shim(t, task.ID())
			for _, pid := range c.serving(t, []int{server}) {
				c.awaitRest(t, pid)
				if pid == server {
					servers = append(servers, rollup(t, pid, "Anonymous"))
				} else {
					supervisors = append(supervisors, rollup(t, pid, "Anonymous"))
				}
			}
		}
		server, supervisor := medianOf(t, "servers", servers, n), medianOf(t, "supervisors", supervisors, n)
		least, most := 0.9*freshServer, 1.1*freshServer
		if unified() {
			least, most = 0, mostFreshServer
		}
		if server < least || server > most {
			t.Errorf("a fresh server has %.2f MB of anonymous memory, want %.2f to %.2f", server/1e6, least/1e6, most/1e6)
		}
		if supervisor > mostFreshSupervisor {
			t.Errorf("a fresh supervisor has %.2f MB of anonymous memory, more than %.2f", supervisor/1e6, mostFreshSupervisor/1e6)
		}
	})
}

// medianOf returns the median of the anonymous memory of n processes.
func medianOf(t *testing.T, what string, bytes []int, n int) float64 {
	t.Helper()
	if len(bytes) != n {
		t.Fatalf("%d %s, want %d", len(bytes), what, n)
	}
	slices.Sort(bytes)
	median := float64(bytes[n/2-1]+bytes[n/2]) / 2
	t.Logf("anonymous memory of fresh %s: median %.2f MB of %v", what, median/1e6, bytes)
	return median
}

func perMB(bytes, n int) float64 { return float64(bytes) / 1e6 / float64(n) }

// overheadOf returns the memory of the shims of n containers and of the other processes that
// serve them, in bytes, as a field of smaps_rollup counts it.
func (c *column) overheadOf(t *testing.T, field, runtime string, n int, opts ...oci.SpecOpts) int {
	t.Helper()
	var tasks []func()
	var shims []int
	for _, id := range c.ids(n) {
		container := c.containerOf(t, c.client, c.image(t, c.client), runtime, id, []string{"testprog", "sleep", "1000"}, opts...)
		task := c.newTask(t, container, cio.NullIO)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		shims = append(shims, c.shim(t, id))
		tasks = append(tasks, func() { remove(t, c.context(t), container) })
	}
	sum := 0
	slices.Sort(shims)
	for _, pid := range c.serving(t, slices.Compact(shims)) {
		sum += rollup(t, pid, field)
	}
	for _, end := range tasks {
		end()
	}
	return sum
}

// serving lists shims and their descendants, without processes in containers.
func (c *column) serving(t *testing.T, shims []int) []int {
	t.Helper()
	pids, err := leaks.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // the process has ended meanwhile
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if parent, err := strconv.Atoi(fields[1]); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	found := slices.Clone(shims)
	for i := 0; i < len(found); i++ { // found grows in the loop
		found = append(found, children[found[i]]...)
	}
	return slices.DeleteFunc(found, c.scope().Contained)
}

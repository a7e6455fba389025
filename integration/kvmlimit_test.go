package integration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// limitsIn returns the limits in the text of a /proc/PID/limits, by their names.
func limitsIn(text string) map[string]string {
	limits := map[string]string{}
	for line := range strings.Lines(text) {
		if name := strings.TrimSpace(line[:min(26, len(line))]); name != "Limit" {
			limits[name] = strings.Join(strings.Fields(line[min(26, len(line)):]), " ")
		}
	}
	return limits
}

// Where the spec has no limits, they are containerd's, as for the containers of a host.
func TestProcessesOfAVMHaveTheLimitsThatRuncsHave(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		silent := func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
			s.Process.Rlimits = nil
			return nil
		}
		// A shell, because the Go runtime of testprog raises its own limit of open files.
		sleep := []string{"sh", "-c", "while :; do testprog sleep 1000; done"}
		runcs := c.runningBy(t, runcsShim, sleep, silent).ID()
		ours := c.running(t, sleep, silent).ID()
		limits := func(id, process string) map[string]string {
			return limitsIn(c.exec(t, nil, id, "cat", "/proc/"+process+"/limits").must(t).stdout)
		}
		want := limits(runcs, "1")
		first, exec := limits(ours, "1"), limits(ours, "self")
		for _, name := range slices.Sorted(maps.Keys(want)) {
			t.Logf("%-22s runc: %-32s the first process: %-32s an exec: %s", name, want[name], first[name], exec[name])
			if first[name] != want[name] || exec[name] != want[name] {
				t.Errorf("%s: %q in the first process and %q in an exec, want runc's, %q", name, first[name], exec[name], want[name])
			}
		}
		if len(want) < 16 {
			t.Errorf("runc's limits are %v", want)
		}
		for file, most := range map[string]string{"fs/nr_open": "2147483584", "fs/file-max": "9223372036854775807", "kernel/threads-max": "4194304", "kernel/pid_max": "4194304"} {
			if got := strings.TrimSpace(c.exec(t, nil, ours, "cat", "/proc/sys/"+file).must(t).stdout); got != most {
				t.Errorf("%s of the VM is %s, want %s", file, got, most)
			}
		}
	})
}

package integration

import (
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// What is skipped by later elsewhere is refused as such, and leaves the task as
// it was: a call that begins to work fails this case, and its skips go with it.
func TestWhatIsNotThereYetSaysSo(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		for name, call := range map[string]func() error{
			"update":     func() error { return task.Update(ctx, containerd.WithResources(&specs.LinuxResources{})) },
			"checkpoint": func() error { _, err := task.Checkpoint(ctx); return err },
		} {
			if err := call(); !errdefs.IsNotImplemented(err) {
				t.Errorf("%s: %v, want not implemented", name, err)
			}
			expectStatus(t, ctx, task, containerd.Running)
		}
		if _, err := task.Metrics(ctx); err == nil { // containerd says only that there are none
			t.Error("stats: no error")
		}
	})
}

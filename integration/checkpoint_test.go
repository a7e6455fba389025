package integration

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
)

// needCriu skips the test with the reason, if processes cannot be checkpointed.
func needCriu(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("criu"); err != nil {
		t.Skip("needs criu")
	}
	if out, err := exec.Command("criu", "check").CombinedOutput(); err != nil {
		t.Skipf("criu does not work here: %s", out)
	}
}

// requirements.md#T8: the state of a task is written to an image, and another container
// continues from there. The program of that container would end at once if it were started.
func TestATaskGoesOnFromItsCheckpoint(t *testing.T) {
	for name, terminal := range map[string]bool{"pipes": false, "terminal": true} {
		t.Run(name, func(t *testing.T) { goesOnFromItsCheckpoint(t, terminal) })
	}
}

// goesOnFromItsCheckpoint checkpoints a task whose streams are pipes, or a terminal.
func goesOnFromItsCheckpoint(t *testing.T, terminal bool) {
	eachOf(t, []string{"oci"}, func(t *testing.T, c *column) {
		needCriu(t)
		ctx := c.context(t)
		creator, opts := cio.NullIO, []oci.SpecOpts{}
		if terminal {
			creator = cio.NewCreator(cio.WithStreams(nil, io.Discard, nil), cio.WithTerminal, cio.WithFIFODir(fifoDir(c.daemon.Dir())))
			opts = append(opts, oci.WithTTY)
		}
		first := c.newTask(t, c.container(t, exitsOnTerm(42), opts...), creator)
		exited := c.wait(t, first)
		if err := first.Start(ctx); err != nil {
			t.Fatal(err)
		}
		image, err := first.Checkpoint(ctx, containerd.WithCheckpointName(c.id()), func(i *containerd.CheckpointTaskInfo) error {
			i.Options = &options.CheckpointOptions{Exit: true}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.client.ImageService().Delete(c.context(t), image.Name()) })
		expectExit(t, exited, 137)
		if _, err := first.Delete(ctx); err != nil {
			t.Error(err)
		}
		container := c.container(t, []string{"false"}, opts...)
		next, err := container.NewTask(ctx, creator, containerd.WithTaskCheckpoint(image))
		if err != nil {
			t.Fatal(err)
		}
		expectStatus(t, ctx, next, containerd.Created)
		exited = c.wait(t, next)
		if err := next.Start(ctx); err != nil {
			t.Fatal(err)
		}
		c.termUntilGone(t, next, exited, 42)
		if _, err := next.Delete(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Without criu the error says so, and the task runs on.
// requirements.md#T8
func TestWithoutCriuACheckpointIsRefusedWithTheReason(t *testing.T) {
	eachOf(t, []string{"oci"}, func(t *testing.T, c *column) {
		if exec.Command("criu", "check").Run() == nil {
			t.Skip("criu works here")
		}
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		if _, err := task.Checkpoint(ctx); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "criu") {
			t.Errorf("checkpoint: %v", err)
		}
		expectStatus(t, ctx, task, containerd.Running)
	})
}

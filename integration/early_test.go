package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// docs/adr/0034-early-answers.md: one more container of a pod, and its deletion, execute the shim
// twice, and neither execution initialises protobuf. Under load the shim may take the longer way.
func TestOneMoreContainerIsAnsweredEarly(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		dir := t.TempDir()
		// containerd reads the standard error of `start` as a part of the answer.
		executable(t, filepath.Join(suite.shims, "containerd-shim-rkt-early-v1"), fmt.Sprintf(
			`for action; do :; done
trace=%s/$action.$$
GODEBUG=inittrace=1 "$(dirname "$0")/containerd-shim-rkt-v1" "$@" 2>$trace.part
code=$?
mv $trace.part $trace.ended
exit $code`, dir))
		ctx, img, pod := c.context(t), c.image(t, c.client), group("group-"+c.id())
		start := func() (client.Container, client.Task) {
			container := c.containerOf(t, c.client, img, "io.containerd.rkt-early.v1", c.id(), []string{"testprog", "sleep", "1000"}, pod)
			task := c.newTask(t, container, cio.NullIO)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			return container, task
		}
		end := func(container client.Container, task client.Task) {
			exited := c.wait(t, task)
			kill(t, ctx, task, syscall.SIGKILL)
			expectExit(t, exited, 137)
			deleteTask(t, ctx, task)
			if err := container.Delete(ctx, client.WithSnapshotCleanup); err != nil {
				t.Error(err)
			}
		}
		first, firstTask := start()
		wait.Until(t, "a start and a delete are answered early", func() bool {
			end(start())
			return early(t, dir, "start") && early(t, dir, "delete")
		})
		end(first, firstTask)
	})
}

// early reports whether an execution with an action has initialised the runtime and not protobuf's
// messages.
func early(t *testing.T, dir, action string) bool {
	t.Helper()
	traces, err := filepath.Glob(filepath.Join(dir, action+".*.ended"))
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range traces {
		text, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "init flag ") && !strings.Contains(string(text), "descriptorpb") {
			return true
		}
	}
	return false
}

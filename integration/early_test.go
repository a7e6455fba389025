package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// docs/adr/0034-early-answers.md: one more container of a pod, and its deletion, execute the shim
// twice, and neither execution becomes the server program, which initialises protobuf. Under load the
// shim may take the longer way.
func TestOneMoreContainerIsAnsweredEarly(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		runtime, early := early(t)
		pod := group("group-" + c.id())
		start := func() containerd.Task {
			return c.runningBy(t, runtime, []string{"testprog", "sleep", "1000"}, pod)
		}
		first := start()
		wait.Until(t, "a start and a delete are answered early", func() bool {
			c.killAndDrop(t, start())
			return early("start") && early("delete")
		})
		c.killAndDrop(t, first)
	})
}

// The front starts the server of a new pod. The pod of a container is removed after its deletion was
// answered, and `delete` waits for that.
func TestTheFirstStartAndTheLastDeleteAreAnsweredEarly(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		runtime, early := early(t)
		wait.Until(t, "a start and a delete are answered early", func() bool {
			c.ctr(t, "run", "--rm", "--runtime", runtime, "--fifo-dir", c.fifoDir(nil), image.BusyboxName, c.id(), "true").must(t)
			c.expectNothingLeft(t)
			return early("start") && early("delete")
		})
	})
}

// early returns a runtime, and a function that reports whether an execution of its shim with an
// action has initialised packages, and not protobuf's messages.
func early(t *testing.T) (runtime string, answered func(action string) bool) {
	t.Helper()
	dir := t.TempDir()
	name := "early" + strings.ToLower(strings.TrimPrefix(filepath.Base(filepath.Dir(dir)), "Test"))
	// containerd reads the standard error of `start` as a part of the answer.
	executable(t, filepath.Join(suite.shims, "containerd-shim-rkt-"+name+"-v1"), fmt.Sprintf(`for action; do :; done
trace=%s/$action.$$
GODEBUG=inittrace=1 "$(dirname "$0")/containerd-shim-rkt-v1" "$@" 2>$trace.part
code=$?
mv $trace.part $trace.ended
exit $code`, dir))
	return "io.containerd.rkt-" + name + ".v1", func(action string) bool {
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
}

package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/protobuf/proto"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// cleanupLimit is the time after which containerd kills a `delete`.
const cleanupLimit = 5 * time.Second

// After the shim of five containers and containerd were killed, `delete` alone reports how each
// container has ended, and leaves nothing of any (containerd#8285, moby#43491;
// requirements.md#D1 to requirements.md#D6).
func TestDeleteAloneTellsTheExitsOfFiveContainers(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		want := map[string]uint32{}
		var last containerd.Task
		for _, code := range []uint32{3, 42, 137, 137, 137} {
			args := []string{"testprog", "exit", fmt.Sprint(code)}
			if code == 137 {
				args = []string{"testprog", "fork", "2"}
			}
			last = c.running(t, args, group(name))
			if code != 137 {
				expectExit(t, c.wait(t, last), code)
			}
			want[last.ID()] = code
		}
		shim := c.shim(t, last.ID())
		c.daemon.Kill()
		t.Cleanup(func() {
			if !alive(c.daemon.PID()) { // the test has failed
				c.resume(t)
			}
		})
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for id, code := range want {
			began := time.Now()
			got := c.deleteByHand(t, id)
			if got.ExitStatus != code || got.ExitedAt.AsTime().After(time.Now()) {
				t.Errorf("%s: exit status %d at %s, want %d", id, got.ExitStatus, got.ExitedAt.AsTime(), code)
			}
			took := time.Since(began)
			if took > cleanupLimit*wait.Busyness() {
				t.Errorf("%s: %s: containerd would have killed it", id, took)
			}
			t.Logf("delete of %s: %d after %s", id, got.ExitStatus, took.Round(time.Millisecond))
		}
		// containerd owns the bundles, and the process that reaps orphans may be slow.
		wait.Observe(t, "nothing but bundles is left", func() (bool, string) {
			left, err := c.remains()
			left = leaks.Only(left, "process", "cgroup", "mount")
			return err == nil && len(left) == 0, strings.Join(left, "\n\t")
		})
		c.resume(t)
		c.awaitNoTasks(t)
	})
}

// deleteCommand is the shim's `delete` as containerd calls it.
func (c *column) deleteCommand(id string) *exec.Cmd {
	bundle := c.daemon.Bundle(id)
	cmd := exec.Command(filepath.Join(suite.shims, c.shimProgram()),
		"-namespace", c.daemon.Namespace(), "-address", c.daemon.Address(), "-publish-binary", "containerd",
		"-id", id, "-bundle", bundle, "delete")
	cmd.Dir = bundle
	cmd.Env = append(slices.Clone(os.Environ()), "RKT_DATA_DIR="+dataDir(c.daemon.Dir()))
	return cmd
}

// deleteByHand runs the shim's `delete` and reads the answer.
func (c *column) deleteByHand(t *testing.T, id string) *taskapi.DeleteResponse {
	t.Helper()
	cmd := c.deleteCommand(id)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("delete %s: %v: %s", id, err, stderr.String())
	}
	var response taskapi.DeleteResponse
	if err := proto.Unmarshal(stdout.Bytes(), &response); err != nil {
		t.Fatalf("delete %s answers %q: %v", id, stdout.String(), err)
	}
	return &response
}

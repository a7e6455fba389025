package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// outage is the time for which containerd is away while events are queued. It is long enough
// for the shim to reach the longest interval between its attempts.
var outage = flag.Duration("outage", 12*time.Second, "how long containerd is away in the cases about it; a minute is the requirement")

// While containerd is away, one pod has a hundred and fifty events, fifty of them exits. All of
// them arrive once and in order (requirements.md#E2, requirements.md#R6).
func TestEventsOfALongOutageArriveAllAndInOrder(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.newTask(t, c.container(t, exitsOnTerm(42)), cio.NullIO)
		before := c.listen(t, task.ID())
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		before.await(t, "start") // otherwise it would be an event of the outage
		spec, err := json.Marshal(process(t, ctx, task, "sh", "-c", "exit $CODE"))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.daemon.Kill()
		t.Cleanup(func() { c.settle(t) })
		shim := c.dialShim(t, c.daemon.Bundle(task.ID()))
		defer shim.client.Close()
		want := shim.execs(t, task.ID(), spec, 49)
		shim.terminate(t, task)
		want = append(want, "exit init 42")
		time.Sleep(*outage - time.Since(began))

		events := c.resumeListening(t, task.ID())
		events.await(t, "exit init 42")
		s := deleteTask(t, ctx, c.reload(t, task.ID()))
		if s.ExitCode() != 42 {
			t.Errorf("exit code %d (requirements.md#R3)", s.ExitCode())
		}
		events.await(t, "delete 42")
		got := events.words()
		if got[0] == "start" { // containerd was killed after it had published this and before the shim knew
			got = got[1:]
		}
		if want = append(want, "delete 42"); !slices.Equal(got, want) {
			t.Errorf("%d events:\n\t%q, want %d:\n\t%q (requirements.md#E1, requirements.md#E2)", len(got), got, len(want), want)
		}
	})
}

// execs runs n execs one after another, and returns their events.
func (s shimConn) execs(t *testing.T, id string, spec []byte, n int) []string {
	t.Helper()
	var events []string
	for i := range n {
		name, code := fmt.Sprintf("e%d", i), i%7
		coded := strings.Replace(string(spec), "exit $CODE", fmt.Sprintf("exit %d", code), 1)
		process := &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: []byte(coded)}
		s.call(t, "Exec", &taskapi.ExecProcessRequest{ID: id, ExecID: name, Spec: process}, &emptypb.Empty{})
		s.call(t, "Start", &taskapi.StartRequest{ID: id, ExecID: name}, &taskapi.StartResponse{})
		var exit taskapi.WaitResponse
		s.call(t, "Wait", &taskapi.WaitRequest{ID: id, ExecID: name}, &exit)
		if int(exit.ExitStatus) != code {
			t.Errorf("exec %s ended with %d, want %d", name, exit.ExitStatus, code)
		}
		events = append(events, "exec-added "+name, "exec-started "+name, fmt.Sprintf("exit %s %d", name, code))
	}
	return events
}

// terminate ends a program of exitsOnTerm and waits for it.
func (s shimConn) terminate(t *testing.T, task containerd.Task) {
	t.Helper()
	wait.Observe(t, "the program ends on SIGTERM", func() (bool, string) {
		_ = syscall.Kill(int(task.Pid()), syscall.SIGTERM) // it may have ended
		var r taskapi.StateResponse
		s.call(t, "State", &taskapi.StateRequest{ID: task.ID()}, &r)
		return r.Status.String() == "STOPPED", r.Status.String()
	})
}

// resumeListening starts containerd again, and subscribes to a container's events before any
// can arrive: it moves the socket to which shims send events into place only afterwards. This
// containerd is configured for another path of that socket, so settle must follow.
func (c *column) resumeListening(t *testing.T, id string) *taskEvents {
	t.Helper()
	socket := filepath.Join(c.daemon.Dir(), "ttrpc.sock")
	c.configure(t, "ttrpc.sock", "late.sock")
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	c.restart(t, nil)
	events := c.listen(t, id)
	if err := os.Symlink("late.sock", socket); err != nil {
		t.Fatal(err)
	}
	return events
}

// settle restarts containerd with its original configuration.
func (c *column) settle(t *testing.T) {
	t.Helper()
	c.configure(t, "late.sock", "ttrpc.sock")
	c.restart(t, nil)
}

// configure changes the configuration of the next start.
func (c *column) configure(t *testing.T, old, new string) {
	t.Helper()
	path := filepath.Join(c.daemon.Dir(), "config.toml")
	write(t, path, strings.ReplaceAll(read(t, path), old, new))
}

// reload returns a task that was made before a restart of containerd.
func (c *column) reload(t *testing.T, id string) containerd.Task {
	t.Helper()
	container, err := c.client.LoadContainer(c.context(t), id)
	if err != nil {
		t.Fatal(err)
	}
	task, err := container.Task(c.context(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

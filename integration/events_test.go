package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	eventtypes "github.com/containerd/containerd/api/events"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/typeurl/v2"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// taskEvents collects the task events of one container, in order.
type taskEvents struct {
	id string

	mu      sync.Mutex
	entries []string
}

// listen subscribes to the events of a container, until the test ends.
func (c *column) listen(t *testing.T, id string) *taskEvents {
	t.Helper()
	e := &taskEvents{id: id}
	c.subscribe(t, e.add)
	return e
}

// subscribe calls add for each task event of a column, one after another, until the test ends.
// It returns when containerd has the subscription: an event that the test publishes itself has
// arrived.
func (c *column) subscribe(t *testing.T, add func(event any)) {
	t.Helper()
	ctx, cancel := context.WithCancel(c.context(t))
	envelopes, errs := c.client.Subscribe(ctx, `topic~="/tasks/"`, "namespace=="+c.daemon.Namespace())
	probe := &eventtypes.TaskResumed{ContainerID: "probe-" + c.id()}
	subscribed := make(chan struct{})
	var once sync.Once
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case e := <-envelopes:
				v, err := typeurl.UnmarshalAny(e.Event)
				if err != nil {
					t.Errorf("event %s: %v", e.Topic, err)
					continue
				}
				if r, ok := v.(*eventtypes.TaskResumed); ok && r.ContainerID == probe.ContainerID {
					once.Do(func() { close(subscribed) })
					continue
				}
				add(v)
			case <-errs:
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	wait.Observe(t, "the test sees events", func() (bool, string) {
		err := c.client.EventService().Publish(ctx, "/tasks/resumed", probe)
		select {
		case <-subscribed:
			return true, ""
		default:
			return false, fmt.Sprint(err)
		}
	})
}

func (e *taskEvents) add(event any) {
	id, word := inAWord(event)
	if id == e.id {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.entries = append(e.entries, word)
	}
}

// inAWord returns the container id and a short form of an event. The form of an exit has the id
// of the process, "init" for the container's own, and the code.
func inAWord(event any) (id, word string) {
	switch e := event.(type) {
	case *eventtypes.TaskCreate:
		id, word = e.ContainerID, "create"
	case *eventtypes.TaskStart:
		id, word = e.ContainerID, "start"
	case *eventtypes.TaskExecAdded:
		id, word = e.ContainerID, "exec-added "+e.ExecID
	case *eventtypes.TaskExecStarted:
		id, word = e.ContainerID, "exec-started "+e.ExecID
	case *eventtypes.TaskOOM:
		id, word = e.ContainerID, "oom"
	case *eventtypes.TaskPaused:
		id, word = e.ContainerID, "paused"
	case *eventtypes.TaskResumed:
		id, word = e.ContainerID, "resumed"
	case *eventtypes.TaskExit:
		id, word = e.ContainerID, fmt.Sprintf("exit %s %d", strings.Replace(e.ID, e.ContainerID, "init", 1), e.ExitStatus)
	case *eventtypes.TaskDelete:
		id, word = e.ContainerID, fmt.Sprintf("delete %d", e.ExitStatus)
	}
	return id, word
}

func (e *taskEvents) words() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.entries)
}

// expect waits for the last event, and then compares all of them.
func (e *taskEvents) expect(t *testing.T, want ...string) {
	t.Helper()
	e.await(t, want[len(want)-1])
	if got := e.words(); !slices.Equal(got, want) {
		t.Errorf("events of %s:\n\t%q, want\n\t%q (requirements.md#E1)", e.id, got, want)
	}
}

func (e *taskEvents) await(t *testing.T, word string) {
	t.Helper()
	wait.Observe(t, "event "+word, func() (bool, string) {
		got := e.words()
		return slices.Contains(got, word), fmt.Sprintf("%q", got)
	})
}

func TestEventsComeInOrder(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		container := c.container(t, exitsOnTerm(42))
		events := c.listen(t, container.ID())
		task := c.newTask(t, container, cio.NullIO)
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		exec, err := task.Exec(ctx, "one", process(t, ctx, task, "testprog", "exit", "7"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		execExited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, execExited, 7)
		deleteTask(t, ctx, exec)
		c.termUntilGone(t, task, exited, 42)
		deleteTask(t, ctx, task)
		if c.name == "runc" {
			return // runc's shim may end before it has sent its last events
		}
		events.expect(t, "create", "start", "exec-added one", "exec-started one", "exit one 7", "exit init 42", "delete 42")
	})
}

// exitsOnTerm is a program that exits with a code on SIGTERM. Until its trap is set, the kernel
// ignores the signal, because the program is process 1.
func exitsOnTerm(code int) []string {
	return []string{"sh", "-c", fmt.Sprintf("trap 'exit %d' TERM; while :; do sleep 0.05; done", code)}
}

// awaitTrap waits until a program of exitsOnTerm has set its trap: before that, SIGTERM ends a process
// that is not the first of its PID namespace. A program in Go that is going to execute it catches
// SIGTERM, too, and SIGURG.
func awaitTrap(t *testing.T, pid uint32) {
	t.Helper()
	wait.Observe(t, "the trap is set", func() (bool, string) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(status), "SigCgt:")
		text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
		caught, err := strconv.ParseUint(text, 16, 64)
		has := func(s syscall.Signal) bool { return caught&(1<<(s-1)) != 0 }
		return err == nil && has(syscall.SIGTERM) && !has(syscall.SIGURG), text
	})
}

// termUntilGone sends SIGTERM to a program of exitsOnTerm until its trap is set and it ends.
func (c *column) termUntilGone(t *testing.T, task containerd.Task, exited <-chan containerd.ExitStatus, code uint32) {
	t.Helper()
	for range 100 {
		_ = task.Kill(c.context(t), syscall.SIGTERM) // it may have ended
		select {
		case s := <-exited:
			if s.ExitCode() != code {
				t.Errorf("exit code %d, want %d", s.ExitCode(), code)
			}
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	t.Fatal("the program does not end on SIGTERM")
}

func TestTheExitsOfExecsComeBeforeInits(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		container := c.container(t, []string{"testprog", "sleep", "1000"})
		events := c.listen(t, container.ID())
		task := c.newTask(t, container, cio.NullIO)
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		const n = 5
		for i := range n {
			exec, err := task.Exec(ctx, fmt.Sprintf("e%d", i), process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
			if err != nil {
				t.Fatal(err)
			}
			if err := exec.Start(ctx); err != nil {
				t.Fatal(err)
			}
		}
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		deleteTask(t, ctx, task)
		events.await(t, "delete 137")
		words := events.words()
		init := slices.Index(words, "exit init 137")
		for i := range n {
			if at := slices.Index(words, fmt.Sprintf("exit e%d 137", i)); at < 0 || at > init {
				t.Errorf("the exit of e%d is event %d, init's is %d (requirements.md#E1): %q", i, at, init, words)
			}
		}
	})
}

func TestAnOOMIsPublishedBeforeTheExitThatItCaused(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		container := c.container(t, []string{"testprog", "allocate", "64"}, oci.WithMemoryLimit(32<<20))
		events := c.listen(t, container.ID())
		task := c.newTask(t, container, cio.NullIO)
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		deleteTask(t, ctx, task)
		events.await(t, "delete 137")
		words := events.words()
		oom, exit := slices.Index(words, "oom"), slices.Index(words, "exit init 137")
		if oom < 0 || oom > exit && c.name != "runc" { // OOM events of runc's shim race with exits
			t.Errorf("events %q (requirements.md#C5)", words)
		}
	})
}

func TestAFailedCreatePublishesNoExit(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		container := c.container(t, []string{"/no/such/program"})
		events := c.listen(t, container.ID())
		if _, err := container.NewTask(c.context(t), cio.NullIO); err == nil {
			t.Fatal("the task was created")
		}
		// The events of a later task come after all events of the failed one.
		task := c.running(t, []string{"testprog", "exit", "0"})
		expectExit(t, c.wait(t, task), 0)
		if words := events.words(); slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "exit") || w == "create" }) {
			t.Errorf("events of the failed create: %q", words)
		}
	})
}

// runc's shim is left out, because it may end before it has sent its last events.
func TestFastExitsAreAllSeen(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		for i := range c.repetitions(30, 5) {
			container := c.container(t, []string{"testprog", "exit", "3"})
			events := c.listen(t, container.ID())
			task := c.newTask(t, container, cio.NullIO)
			exited := c.wait(t, task)
			if err := task.Start(ctx); err != nil {
				t.Fatalf("start %d: %v", i, err)
			}
			expectExit(t, exited, 3)
			deleteTask(t, ctx, task)
			events.expect(t, "create", "start", "exit init 3", "delete 3")
		}
	})
}

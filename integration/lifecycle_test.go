package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func TestCreateAnswersWithTheProcessThatStartReleases(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		before := time.Now()
		task := c.task(t, []string{"testprog", "exit", "42"})
		exited := c.wait(t, task)
		expectStatus(t, ctx, task, containerd.Created)
		pid := task.Pid()
		for _, ns := range []string{"net", "ipc", "uts", "pid", "mnt"} {
			inside, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			if err != nil {
				t.Fatalf("the created process: %v (requirements.md#T1)", err)
			}
			if host, _ := os.Readlink("/proc/self/ns/" + ns); inside == host {
				t.Errorf("the created process is in the host's %s namespace (requirements.md#T1)", ns)
			}
		}
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if task.Pid() != pid {
			t.Errorf("pid %d after start, %d before (requirements.md#T2)", task.Pid(), pid)
		}
		s := expectExit(t, exited, 42)
		if s.ExitTime().Before(before) || s.ExitTime().After(time.Now()) {
			t.Errorf("exited at %s; now is %s (requirements.md#X1)", s.ExitTime(), time.Now())
		}
		expectStatus(t, ctx, task, containerd.Stopped)
		if err := task.Start(ctx); err == nil {
			t.Error("a stopped task was started (requirements.md#T2)")
		}
		again := expectExit(t, c.wait(t, task), 42)
		last := deleteTask(t, ctx, task)
		if last.ExitCode() != 42 || !last.ExitTime().Equal(s.ExitTime()) || !again.ExitTime().Equal(s.ExitTime()) {
			t.Errorf("wait %v, wait again %v, delete %v (requirements.md#X1, requirements.md#T13)", s, again, last)
		}
		if _, err := task.Delete(ctx); !errdefs.IsNotFound(err) {
			t.Errorf("second delete: %v, want not found (requirements.md#T3)", err)
		}
	})
}

func TestACreatedTaskDiesOfItsSignal(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			ctx := c.context(t)
			task := c.task(t, []string{"testprog", "sleep", "1000"})
			exited := c.wait(t, task)
			kill(t, ctx, task, s)
			code := 128 + uint32(s) // every fatal signal ends it, although it is process 1
			if c.name == "runc" && s == syscall.SIGTERM {
				code = 2 // runc's init is a Go program, which exits by itself
			}
			expectExit(t, exited, code) // requirements.md#T9
			if last := deleteTask(t, ctx, task); last.ExitCode() != code {
				t.Errorf("delete answered %d, want %d", last.ExitCode(), code)
			}
		}
	})
}

func TestKillOfWhatIsGoneIsNotFound(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "exit", "0"})
		expectExit(t, c.wait(t, task), 0)
		if err := task.Kill(ctx, syscall.SIGTERM); !errdefs.IsNotFound(err) {
			t.Errorf("kill of a stopped task: %v, want not found (requirements.md#T9)", err)
		}
	})
}

func TestCreateOfAnExistingTaskIsRefused(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		container, err := c.client.LoadContainer(c.context(t), task.ID())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := container.NewTask(c.context(t), cio.NullIO); !errdefs.IsAlreadyExists(err) {
			t.Errorf("second task: %v, want already exists (requirements.md#T1)", err)
		}
		expectStatus(t, c.context(t), task, containerd.Running)
	})
}

func TestCloseIOEndsTheInput(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		in, feed := io.Pipe()
		var out streams
		task := c.newTask(t, c.container(t, []string{"cat"}), out.creator(c, in))
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := feed.Write([]byte("before the end\n")); err != nil {
			t.Fatal(err)
		}
		// A client that disconnects does not end the input (requirements.md#I2). CloseIO does
		// (requirements.md#T11).
		if err := feed.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-exited:
			t.Errorf("the program ended with %d when the client closed its end", s.ExitCode())
		case <-time.After(300 * time.Millisecond):
		}
		if err := task.CloseIO(ctx, containerd.WithStdinCloser); err != nil {
			t.Errorf("close io: %v", err)
		}
		expectExit(t, exited, 0)
		awaitOutput(t, task)
		deleteTask(t, ctx, task)
		if out.stdout.String() != "before the end\n" {
			t.Errorf("output %q", out.stdout.String())
		}
	})
}

func TestAnExitIsNotHeldBackByAChildThatKeepsStdout(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		var out streams
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		exec, err := task.Exec(ctx, "leaves-a-child", process(t, ctx, task, "testprog", "background", "1000"), out.creator(c, nil))
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0) // requirements.md#X6
		gone := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, gone, 137)
		deleteTask(t, ctx, exec)
	})
}

func TestExecLifecycle(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		var out streams
		spec := process(t, ctx, task, "sh", "-c", "cat; exit 7")
		exec, err := task.Exec(ctx, "first", spec, out.creator(c, strings.NewReader("hello")))
		if err != nil {
			t.Fatal(err)
		}
		expectStatus(t, ctx, exec, containerd.Created)
		if _, err := task.Exec(ctx, "first", spec, cio.NullIO); !errdefs.IsAlreadyExists(err) {
			t.Errorf("second exec of the same id: %v, want already exists (requirements.md#T4)", err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := exec.CloseIO(ctx, containerd.WithStdinCloser); err != nil {
			t.Errorf("close io: %v", err)
		}
		expectExit(t, exited, 7)
		if err := exec.Kill(ctx, syscall.SIGTERM); !errdefs.IsNotFound(err) {
			t.Errorf("kill of a finished exec: %v, want not found (requirements.md#T9)", err)
		}
		awaitOutput(t, exec)
		if s := deleteTask(t, ctx, exec); s.ExitCode() != 7 {
			t.Errorf("delete: %d", s.ExitCode())
		}
		if out.stdout.String() != "hello" {
			t.Errorf("output %q", out.stdout.String())
		}
		expectStatus(t, ctx, task, containerd.Running)
	})
}

func TestAnExecThatWasNotStartedCanBeDeleted(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		exec, err := task.Exec(ctx, "never", process(t, ctx, task, "true"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Kill(ctx, syscall.SIGTERM); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("kill: %v, want failed precondition (requirements.md#T9)", err)
		}
		if s := deleteTask(t, ctx, exec); s.ExitCode() != 0 {
			t.Errorf("exit code %d (requirements.md#T3)", s.ExitCode())
		}
	})
}

func TestNoExecStartsAfterTheTaskHasStopped(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		exec, err := task.Exec(ctx, "late", process(t, ctx, task, "true"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		if err := exec.Start(ctx); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("start: %v, want failed precondition (requirements.md#T2)", err)
		}
		deleteTask(t, ctx, exec)
	})
}

func TestTheEndOfInitEndsEverythingInTheContainer(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		exec, err := task.Exec(ctx, "beside", process(t, ctx, task, "testprog", "ignore-term"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		execExited, exited := c.wait(t, exec), c.wait(t, task)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		expectExit(t, execExited, 137)
	})
}

func TestTwoHundredExecsLeaveNoDescriptors(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		shim := c.shim(t, task.ID())
		run := func(id string) {
			var out streams
			exec, err := task.Exec(ctx, id, process(t, ctx, task, "echo", id), out.creator(c, nil))
			if err != nil {
				t.Fatal(err)
			}
			exited := c.wait(t, exec)
			if err := exec.Start(ctx); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 0)
			awaitOutput(t, exec)
			deleteTask(t, ctx, exec)
			if out.stdout.String() != id+"\n" {
				t.Fatalf("exec %s said %q", id, out.stdout.String())
			}
		}
		run("warm-up")
		before := c.descriptors(t, shim)
		for i := range c.repetitions(200, 20) {
			run(fmt.Sprintf("e%d", i))
		}
		wait.Observe(t, "the shim has as few open files as before (requirements.md#I9)", func() (bool, string) {
			now := c.descriptors(t, shim)
			return len(now) <= len(before), fmt.Sprintf("before %q\n\tnow    %q", before, now)
		})
	})
}

// repetitions is the number of repetitions of a case: many for native, which is under test and
// fast, and few for columns in which every process takes a while.
func (c *column) repetitions(native, others int) int {
	if c.name == "native" {
		return native
	}
	return others
}

func TestFailedStartOfAnExecLeavesItToBeDeleted(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		shim := c.shim(t, task.ID())
		before := c.descriptors(t, shim)
		exec, err := task.Exec(ctx, "bad", process(t, ctx, task, "no-such-program"), (&streams{}).creator(c, nil))
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err == nil || !strings.Contains(err.Error(), "executable file not found in $PATH") {
			t.Errorf("start: %v (requirements.md#T2)", err)
		}
		select {
		case <-exited:
		case <-time.After(wait.Patience):
			t.Error("wait does not return after a failed start (requirements.md#T13)")
		}
		deleteTask(t, ctx, exec)
		wait.Observe(t, "the shim has as few open files as before (requirements.md#I9)", func() (bool, string) {
			now := c.descriptors(t, shim)
			return len(now) <= len(before), fmt.Sprintf("before %q\n\tnow    %q", before, now)
		})
	})
}

func TestAFailedCreateLeavesNoOutputOfTheShimInTheStreams(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		var out streams
		container := c.container(t, []string{"/no/such/program"})
		_, err := container.NewTask(c.context(t), out.creator(c, nil))
		if err == nil || !strings.Contains(err.Error(), "no such file or directory") {
			t.Errorf("create: %v (requirements.md#T1)", err)
		}
		if all := bytes.Join([][]byte{out.stdout.Bytes(), out.stderr.Bytes()}, nil); len(all) > 0 {
			t.Errorf("the streams hold %q", all)
		}
		if _, err := container.Task(c.context(t), nil); !errdefs.IsNotFound(err) {
			t.Errorf("the task after a failed create: %v", err)
		}
		// The same container can be started again (requirements.md#T1).
		_, again := container.NewTask(c.context(t), cio.NullIO)
		if again == nil || !errors.Is(again, err) && !strings.Contains(again.Error(), "no such file or directory") {
			t.Errorf("second create: %v", again)
		}
	})
}

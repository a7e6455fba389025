package integration

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// echoed runs cat with an input and expects the same output.
func (c *column) echoed(ctx context.Context, task containerd.Task, id, input string) error {
	spec, err := task.Spec(ctx)
	if err != nil {
		return err
	}
	process := *spec.Process
	process.Args = []string{"cat"}
	var out streams
	exec, err := task.Exec(ctx, id, &process, out.creator(c, strings.NewReader(input)))
	if err != nil {
		return err
	}
	exited, err := exec.Wait(ctx)
	if err != nil {
		return err
	}
	if err := exec.Start(ctx); err != nil {
		return err
	}
	if err := exec.CloseIO(ctx, containerd.WithStdinCloser); err != nil {
		return err
	}
	select {
	case s := <-exited:
		if s.ExitCode() != 0 {
			return fmt.Errorf("cat ended with %d: %w", s.ExitCode(), s.Error())
		}
	case <-time.After(wait.Patience):
		return fmt.Errorf("cat does not see the end of its input within %s", wait.Patience)
	}
	exec.IO().Wait()
	if _, err := exec.Delete(ctx); err != nil {
		return err
	}
	if got := out.stdout.String(); got != input {
		return fmt.Errorf("cat says %q, it was given %q", got, input)
	}
	return nil
}

// Every one of many programs sees the end of its input, after all of the input
// (containerd#2439, nerdctl#5042; requirements.md#I2, requirements.md#T11).
func TestTheEndOfInputIsAlwaysSeen(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		for i := range c.often(8, 3, 500) {
			text := fmt.Sprintf("x%d\n", i)
			c.ctrWith(t, strings.NewReader(text), c.runArgs([]string{"--rm"}, c.id(), "cat")...).must(t).mustSay(t, text)
		}
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		var execs []string
		for i := range c.often(200, 20, 500) {
			execs = append(execs, fmt.Sprintf("e%d", i))
		}
		atOnce(t, execs, func(id string) error { return c.echoed(ctx, task, id, id+"\n") })
	})
}

// A client may close the input before the program runs, twice, and after the program has ended
// (requirements.md#T11).
func TestCloseIOBeforeTheStartAndTwice(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		var out streams
		task := c.newTask(t, c.container(t, []string{"cat"}), out.creator(c, strings.NewReader("before the start\n")))
		exited := c.wait(t, task)
		closeIO := func(when string) {
			if err := task.CloseIO(ctx, containerd.WithStdinCloser); err != nil {
				t.Errorf("close io %s: %v", when, err)
			}
		}
		closeIO("before the start")
		closeIO("again")
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		closeIO("after the start")
		expectExit(t, exited, 0)
		closeIO("after the end")
		awaitOutput(t, task)
		deleteTask(t, ctx, task)
		if got := out.stdout.String(); got != "before the start\n" {
			t.Errorf("output %q", got)
		}
	})
}

// A client that is killed has not closed the input, so the program waits for the next client
// (containerd#2659; requirements.md#I2).
func TestAKilledClientDoesNotEndTheInput(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		id := c.id()
		fifos := filepath.Join(c.daemon.Dir(), "detached")
		log := filepath.Join(t.TempDir(), "log")
		client := c.daemon.Ctr(c.context(t), "run", "--runtime", c.runtime, "--fifo-dir", fifos, image.BusyboxName, id,
			"sh", "-c", "read a; read b; exit 7")
		input, feed := io.Pipe()
		defer feed.Close()
		client.Stdin = input
		said, err := os.Create(log)
		if err != nil {
			t.Fatal(err)
		}
		defer said.Close()
		client.Stdout, client.Stderr = said, said
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(feed, "first\n") }()
		wait.Observe(t, "the container runs", func() (bool, string) {
			_, state := c.status(t, id)
			return state == "RUNNING", state
		})
		task := c.reload(t, id)
		exited := c.wait(t, task)
		if err := client.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		feed.Close()
		_ = client.Wait() // killed
		select {
		case s := <-exited:
			t.Fatalf("the program ended with %d when its client was killed", s.ExitCode())
		case <-time.After(time.Second):
		}
		next, err := os.OpenFile(c.stdinOf(t, id), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if _, err := next.WriteString("second\nthird\n"); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 7)
		deleteTask(t, c.context(t), task)
	})
}

// stdinOf returns the path of the fifo of a task's input.
func (c *column) stdinOf(t *testing.T, id string) string {
	t.Helper()
	response, err := c.client.TaskService().Get(c.context(t), &tasks.GetRequest{ContainerID: id})
	if err != nil {
		t.Fatal(err)
	}
	return response.Process.Stdin
}

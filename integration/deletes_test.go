package integration

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// deletion is the answer to one Delete.
type deletion struct {
	code uint32
	err  error
}

func (d deletion) String() string {
	if d.err != nil {
		return d.err.Error()
	}
	return fmt.Sprintf("code %d", d.code)
}

// deleteTwice sends two Deletes for one task, like containerd's CRI for a sandbox whose start
// it abandons while its exit monitor sees the exit.
func (c *column) deleteTwice(ctx context.Context, id, exec string, apart time.Duration) [2]deletion {
	var answers [2]deletion
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() {
			time.Sleep(time.Duration(i) * apart)
			answers[i] = c.deleteOnce(ctx, id, exec)
		})
	}
	both.Wait()
	return answers
}

func (c *column) deleteOnce(ctx context.Context, id, exec string) deletion {
	var d deletion
	var r *tasks.DeleteResponse
	if exec == "" {
		r, d.err = c.client.TaskService().Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	} else {
		r, d.err = c.client.TaskService().DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: id, ExecID: exec})
	}
	d.code, d.err = r.GetExitStatus(), errgrpc.ToNative(d.err)
	return d
}

// wrong returns an error if the answers to two Deletes of a process that ended with code are
// wrong. A Delete that arrives after the other was answered must get NotFound.
func wrong(answers [2]deletion, code uint32) error {
	right := 0
	for _, d := range answers {
		if d.err == nil && d.code == code {
			right++
		} else if !errdefs.IsNotFound(d.err) {
			right = -len(answers)
		}
	}
	if right > 0 {
		return nil
	}
	return fmt.Errorf("two Deletes at once were answered: %v; %v", answers[0], answers[1])
}

// When the shim answered the second Delete with NotFound, containerd sent Shutdown, and the
// shim ended before the first Delete was answered: "ttrpc: closed".
func TestTwoDeletesAtOnceGetTheSameAnswer(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		late := 0
		n := c.often(20, 5, 200)
		for range n {
			task := c.running(t, []string{"sleep", "1000"})
			exited := c.wait(t, task)
			kill(t, c.context(t), task, syscall.SIGKILL)
			expectExit(t, exited, 137)
			answers := c.deleteTwice(c.context(t), task.ID(), "", time.Millisecond)
			if err := wrong(answers, 137); err != nil {
				t.Errorf("%s: %v", task.ID(), err)
			} else if answers[1].err != nil {
				late++
			}
		}
		t.Logf("of %d second Deletes %d came after the first was answered", n, late)
	})
}

func TestTwoDeletesOfAnExecAtOnceGetTheSameAnswer(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"sleep", "1000"})
		for i := range c.often(20, 5, 200) {
			id := fmt.Sprintf("e%d", i)
			exec, err := task.Exec(ctx, id, process(t, ctx, task, "testprog", "exit", "7"), cio.NullIO)
			if err != nil {
				t.Fatal(err)
			}
			exited := c.wait(t, exec)
			if err := exec.Start(ctx); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 7)
			if err := wrong(c.deleteTwice(ctx, task.ID(), id, 0), 7); err != nil {
				t.Errorf("exec %s: %v", id, err)
			}
		}
	})
}

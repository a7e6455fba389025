package integration

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// requirements.md#T7
func TestPauseAndResume(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		container := c.container(t, []string{"testprog", "sleep", "1000"})
		events := c.listen(t, container.ID())
		task := c.newTask(t, container, cio.NullIO)
		if err := task.Pause(ctx); err == nil {
			t.Error("a created task was paused")
		}
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		exec, err := task.Exec(ctx, "e", process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := task.Resume(ctx); err == nil {
			t.Error("a running task was resumed")
		}
		for range 2 {
			if err := task.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			expectStatus(t, ctx, task, containerd.Paused)
			expectStatus(t, ctx, exec, containerd.Paused)
			if err := task.Pause(ctx); err == nil {
				t.Error("a paused task was paused")
			}
			if _, err := task.Delete(ctx); err == nil {
				t.Error("a paused task was deleted")
			}
			if late, err := task.Exec(ctx, "late", process(t, ctx, task, "true"), cio.NullIO); err == nil {
				t.Errorf("a paused task took the exec %s", late.ID())
			}
			if pids, err := task.Pids(ctx); err != nil || len(pids) != 2 {
				t.Errorf("pids of a paused task: %v, %v", pids, err)
			}
			if err := task.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			expectStatus(t, ctx, task, containerd.Running)
			expectStatus(t, ctx, exec, containerd.Running)
		}
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		deleteTask(t, ctx, task)
		events.expect(t, "create", "start", "exec-added e", "exec-started e",
			"paused", "resumed", "paused", "resumed", "exit e 137", "exit init 137", "delete 137")
	})
}

// requirements.md#T9
func TestKillAllOfAPausedTask(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, hostPID := range []bool{false, true} {
			ctx := c.context(t)
			var opts []oci.SpecOpts
			if hostPID {
				opts = append(opts, oci.WithHostNamespace(specs.PIDNamespace))
			}
			task := c.running(t, []string{"testprog", "fork", "2"}, opts...)
			exited := c.wait(t, task)
			if err := task.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			if err := task.Kill(ctx, syscall.SIGKILL, containerd.WithKillAll); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 137)
			deleteTask(t, ctx, task)
		}
	})
}

// runc's shim is left out, because its Pause sometimes fails during execs. With runc in the pod
// ours does, too, once in some forty runs: on cgroup version 1, a runc that sets limits freezes
// and thaws the cgroup, even if another process has frozen it.
// requirements.md#T7
func TestPauseInAnExecStorm(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		if c.name == "oci" {
			t.Skip("runc thaws what others have frozen")
		}
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for worker := range 3 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if err := runExec(t, c, task, fmt.Sprintf("e%d-%d", worker, i)); err != nil && !errdefs.IsFailedPrecondition(err) {
						t.Errorf("exec: %v", err)
						return
					}
				}
			})
		}
		for range c.repetitions(10, 3) {
			if err := task.Pause(ctx); err != nil {
				t.Errorf("pause: %v", err)
				break
			}
			time.Sleep(20 * time.Millisecond)
			if err := task.Resume(ctx); err != nil {
				t.Errorf("resume: %v", err)
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		close(stop)
		wg.Wait()
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
	})
}

// containerd gives `delete` five seconds.
// requirements.md#D4
func TestAPausedTaskIsDeletedWhenItsShimDies(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "fork", "2"})
		exited := c.wait(t, task)
		if err := task.Pause(c.context(t)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(c.shim(t, task.ID()), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if s := <-exited; s.Error() == nil && s.ExitCode() != 137 {
			t.Errorf("exit code %d, want 137", s.ExitCode())
		}
		wait.Observe(t, "its first process has gone", func() (bool, string) {
			return !alive(int(task.Pid())), fmt.Sprint(task.Pid())
		})
	})
}

// runExec runs true in a task and deletes the exec. It may be refused.
func runExec(t *testing.T, c *column, task containerd.Task, id string) error {
	ctx := c.context(t)
	exec, err := task.Exec(ctx, id, process(t, ctx, task, "true"), cio.NullIO)
	if err != nil {
		return err
	}
	exited, err := exec.Wait(ctx)
	if err == nil {
		err = exec.Start(ctx)
	}
	if err != nil {
		_, _ = exec.Delete(ctx)
		return err
	}
	if s := <-exited; s.ExitCode() != 0 {
		t.Errorf("exec %s: code %d, %v", id, s.ExitCode(), s.Error())
	}
	_, err = exec.Delete(ctx)
	return err
}

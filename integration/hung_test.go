package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// withHook makes a container run a shell script on the host, in a hook of its creation.
func withHook(script string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{
			Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		}}}
		return nil
	}
}

// reaching makes a script write to a file, which shows that the script has come to this point.
func reaching(file string) string { return fmt.Sprintf("echo > '%s'; ", file) }

func awaitFile(t *testing.T, file string) {
	t.Helper()
	wait.Observe(t, file+" is there", func() (bool, string) { return exists(file), "" })
}

// answers sends a request that must be answered, with any result.
func (s shimConn) answers(t *testing.T, method string, request, response any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), s.namespace), wait.Patience)
	defer cancel()
	began := time.Now()
	err := s.client.Call(ctx, s.service, method, request, response)
	if ctx.Err() != nil {
		t.Errorf("%s of the shim does not answer: %v", method, err)
	}
	t.Logf("%s after %s: %v", method, time.Since(began).Round(time.Millisecond), err)
	return err
}

// While a hook of one container's Create hangs, the shim of its pod answers every call for that
// container and for the others, and so do containerd and its clients (containerd#13848,
// containerd#2438; requirements.md#N6, requirements.md#T5).
func TestAHungHookHoldsUpNobodyElse(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		lives := c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		goes := c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		file := filepath.Join(t.TempDir(), "reached")
		hung := c.container(t, []string{"true"}, group(name), withHook(reaching(file)+"sleep 1000"))
		creating, cancel := context.WithCancel(ctx)
		created := make(chan error, 1)
		go func() {
			_, err := hung.NewTask(creating, cio.NullIO)
			created <- err
		}()
		t.Cleanup(cancel)
		awaitFile(t, file)

		shim := c.dialShim(t, c.daemon.Bundle(lives.ID()))
		defer shim.client.Close()
		for _, id := range []string{lives.ID(), hung.ID()} {
			_ = shim.answers(t, "State", &taskapi.StateRequest{ID: id}, &taskapi.StateResponse{})
			_ = shim.answers(t, "Connect", &taskapi.ConnectRequest{ID: id}, &taskapi.ConnectResponse{})
			_ = shim.answers(t, "Pids", &taskapi.PidsRequest{ID: id}, &taskapi.PidsResponse{})
			_ = shim.answers(t, "Stats", &taskapi.StatsRequest{ID: id}, &taskapi.StatsResponse{})
		}
		_ = shim.answers(t, "Kill", &taskapi.KillRequest{ID: hung.ID(), Signal: 9}, &emptypb.Empty{})
		_ = shim.answers(t, "Delete", &taskapi.DeleteRequest{ID: hung.ID()}, &taskapi.DeleteResponse{})
		c.useAndDelete(t, lives, goes)
		select {
		case err := <-created:
			t.Errorf("Create has returned in the meantime: %v", err)
		default:
		}
		cancel()
		if err := wait.For(t, "the return of Create, whose client has gone", created); err == nil {
			t.Error("the container was created")
		}
		expectStatus(t, ctx, lives, containerd.Running)
	})
}

// useAndDelete makes calls for one container that need the stage1, and ends another one.
func (c *column) useAndDelete(t *testing.T, lives, goes containerd.Task) {
	t.Helper()
	ctx := c.context(t)
	c.exec(t, nil, lives.ID(), "echo", "still here").must(t).mustSay(t, "still here\n")
	exited := c.wait(t, goes)
	kill(t, ctx, goes, syscall.SIGKILL)
	expectExit(t, exited, 137)
	c.drop(t, goes)
	if _, state := c.status(t, lives.ID()); state != "RUNNING" {
		t.Errorf("%s is %q for ctr", lives.ID(), state)
	}
}

// While a stage1 does not answer, all calls that do not need it are answered, also to a
// containerd that starts meanwhile, and all others are refused in time. Events of that time are
// seen when the stage1 goes on.
// requirements.md#N6
func TestAStoppedStage1HoldsUpNobody(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		_, record := c.pod(t, task.ID())
		if err := syscall.Kill(record.Supervisor.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		resume := func() { _ = syscall.Kill(record.Supervisor.PID, syscall.SIGCONT) }
		defer resume()
		shim := c.dialShim(t, c.daemon.Bundle(task.ID()))
		defer shim.client.Close()
		for method, m := range map[string][2]any{
			"State":   {&taskapi.StateRequest{ID: task.ID()}, &taskapi.StateResponse{}},
			"Connect": {&taskapi.ConnectRequest{ID: task.ID()}, &taskapi.ConnectResponse{}},
			"Pids":    {&taskapi.PidsRequest{ID: task.ID()}, &taskapi.PidsResponse{}},
			"Stats":   {&taskapi.StatsRequest{ID: task.ID()}, &taskapi.StatsResponse{}},
		} {
			if err := shim.answers(t, method, m[0], m[1]); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
		c.restart(t, nil)
		task = c.reload(t, task.ID())
		expectStatus(t, ctx, task, containerd.Running)
		exec, err := task.Exec(ctx, "e", process(t, ctx, task, "true"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		// With oci the supervisor has no part in an exec.
		if err := exec.Start(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Logf("start of an exec: %v", err)
		}
		expectStatus(t, ctx, task, containerd.Running)
		exited := c.wait(t, task)
		if err := task.Kill(ctx, syscall.SIGKILL); err != nil {
			t.Errorf("kill: %v", err)
		}
		resume()
		expectExit(t, exited, 137)
	})
}

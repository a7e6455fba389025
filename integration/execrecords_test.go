package integration

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// records lists the files of exits in a pod, except the spare files, one of which exists for
// each container.
func records(pod string) (files []string, err error) {
	dir := filepath.Join(pod, "stage1/rootfs/rkt/status")
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	return files, err
}

// execTrue runs an exec of `true`, from its Exec to its Delete.
func execTrue(ctx context.Context, task containerd.Task, spec *specs.Process, id string) error {
	exec, err := task.Exec(ctx, id, spec, cio.NullIO)
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
	<-exited
	st, err := exec.Delete(ctx)
	if err == nil && st.ExitCode() != 0 {
		err = fmt.Errorf("exec %s ended with %d", id, st.ExitCode())
	}
	return err
}

// timedDelete ends a container and returns how long the Delete of its task takes.
func (c *column) timedDelete(t *testing.T, task containerd.Task) time.Duration {
	t.Helper()
	exited := c.wait(t, task)
	kill(t, c.context(t), task, syscall.SIGKILL)
	expectExit(t, exited, 137)
	began := time.Now()
	deleteTask(t, c.context(t), task)
	return time.Since(began)
}

// A container may run for months and be probed every few seconds. Its execs leave no file on
// the disk, and its Delete takes as long as that of a new container.
func TestExecsLeaveNoRecordBehind(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		// The Delete is timed on a busy machine, before and after the execs.
		var fresh []time.Duration
		deleteFresh := func() {
			for range 5 {
				fresh = append(fresh, c.timedDelete(t, c.running(t, []string{"testprog", "sleep", "1000"})))
			}
		}
		deleteFresh()
		task := c.running(t, []string{"testprog", "sleep", "100000"})
		dir, _ := c.pod(t, task.ID())
		spec := process(t, ctx, task, "true")
		n := c.often(200, 30, 20_000)
		for i := range n {
			if err := execTrue(ctx, task, spec, fmt.Sprintf("e%d", i)); err != nil {
				_, state := c.status(t, task.ID())
				t.Fatalf("%v; the container is %s", err, state)
			}
			if left, err := records(dir); err != nil || len(left) > 0 {
				t.Fatalf("after %d execs there are the records %q (%v)", i+1, left, err)
			}
		}
		took := c.timedDelete(t, task)
		deleteFresh()
		t.Logf("%d execs: no record; Delete took %s, of new containers %s", n, took, fresh)
		if *longFlag && took > 2*slices.Max(fresh) {
			t.Errorf("after %d execs Delete took %s, of new containers it took %s", n, took, fresh)
		}
	})
}

// If an exec has an id that was used before, and its supervisor is killed, the exec counts as
// killed. The exit of the earlier exec is not reported for it.
func TestAnExecIDThatIsUsedAgainHasItsOwnExit(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		ended := c.wait(t, task)
		first, err := task.Exec(ctx, "x", process(t, ctx, task, "testprog", "exit", "7"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, first)
		if err := first.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 7)
		deleteTask(t, ctx, first)

		second, err := task.Exec(ctx, "x", process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		exited = c.wait(t, second)
		if err := second.Start(ctx); err != nil {
			t.Fatal(err)
		}
		_, record := c.pod(t, task.ID())
		if err := syscall.Kill(record.Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		expectExit(t, ended, 137)
	})
}

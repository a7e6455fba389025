package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/stuckfs"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// stuckTask starts a container with a file system mounted in its root that cannot be unmounted
// and has no other mount.
func (c *column) stuckTask(t *testing.T, name string, args ...string) (containerd.Task, *stuckfs.FS) {
	t.Helper()
	dir, err := os.MkdirTemp(suite.dir, "stuck-")
	if err != nil {
		t.Fatal(err)
	}
	fs, err := stuckfs.Mount(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		t.Skipf("the kernel has no FUSE or no loop devices: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fs.Close)
	detach := func() error { return unix.Unmount(dir, unix.MNT_DETACH) }
	container := c.container(t, args, group(name))
	task, err := container.NewTask(c.context(t), cio.NullIO, containerd.WithRootFS([]mount.Mount{
		{Type: "bind", Source: dir, Target: "/home", Options: []string{"bind", "ro"}},
	}))
	if err := errors.Join(err, detach(), os.Remove(dir)); err != nil {
		t.Fatal(err)
	}
	if err := task.Start(c.context(t)); err != nil {
		t.Fatal(err)
	}
	return task, fs
}

// When an unmount hangs, only the Deletes of that container wait, each within its own deadline.
// The pod's other containers and containerd go on. When the file system answers, a Delete that
// still waits is answered with the exit code, and nothing is left (containerd#7496,
// containerd#8931; requirements.md#T3, requirements.md#T16).
func TestADeleteWhoseUnmountHangsIsNotInTheWay(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		sibling := c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		task, fs := c.stuckTask(t, name, "testprog", "exit", "42")
		expectExit(t, c.wait(t, task), 42)

		given, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		s, err := task.Delete(given)
		t.Logf("the first delete: %v, %v", s, err)
		// Another container that was started meanwhile may have a copy of the mount. Then the
		// end of that copy hangs, and not the Delete.
		hangs := err != nil
		wait.For(t, "the unmount hangs", fs.Stuck())

		second := make(chan deletion, 1)
		if hangs {
			go func() { second <- c.deleteOnce(ctx, task.ID(), "") }()
		} else {
			second <- deletion{code: 42}
		}
		c.exec(t, nil, sibling.ID(), "echo", "still here").must(t).mustSay(t, "still here\n")
		if _, state := c.status(t, sibling.ID()); state != "RUNNING" {
			t.Errorf("%s is %q for ctr", sibling.ID(), state)
		}
		exited := c.wait(t, sibling)
		kill(t, ctx, sibling, syscall.SIGKILL)
		expectExit(t, exited, 137)
		if hangs && len(second) > 0 {
			// A busy containerd may be cancelled after the shim's answer, while it executes `delete`. The
			// task is gone for it then, and so the Delete did not hang.
			d := <-second
			if !errdefs.IsNotFound(d.err) {
				t.Errorf("the second delete did not wait for the first: %v", d)
			}
			second <- deletion{code: 42}
		}
		fs.Release()
		if d := wait.For(t, "the answer of the second delete", second); d.err != nil || d.code != 42 {
			t.Errorf("the second delete: %v", d)
		}
		c.drop(t, sibling)
	})
}

// If the shim was killed, `delete` hangs. It gives up before containerd's limit, and a later
// `delete` removes the rest (requirements.md#D3). A container that another test starts at that
// moment has a copy of the mount for a while. Then nothing hangs, and the test tries again.
func TestADeleteByHandWhoseUnmountHangsGivesUp(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		for range 5 {
			if c.deleteHangs(t) || t.Failed() {
				return
			}
		}
		t.Error("no unmount has hung")
	})
}

// deleteHangs calls `delete` for a container whose root cannot be unmounted, and reports
// whether that hung, as it should.
func (c *column) deleteHangs(t *testing.T) bool {
	t.Helper()
	task, fs := c.stuckTask(t, "group-"+c.id(), "testprog", "sleep", "1000")
	shim := c.shim(t, task.ID())
	c.daemon.Kill()
	t.Cleanup(func() {
		if !alive(c.daemon.PID()) { // the test has failed
			fs.Release() // so that containerd does not hang in it
			c.resume(t)
		}
	})
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var out []byte
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, err = c.deleteCommand(task.ID()).CombinedOutput()
	}()
	wait.For(t, "delete ends", ended)
	t.Logf("delete after %s: %v: %s", time.Since(began).Round(time.Millisecond), err, out)
	hung := err != nil
	if hung && !strings.Contains(string(out), task.ID()) {
		t.Errorf("delete: %v: %s", err, out)
	}
	if took := time.Since(began); took > cleanupLimit*wait.Busyness() {
		t.Errorf("delete took %s: containerd would have killed it", took)
	}
	if hung {
		wait.For(t, "the unmount hangs", fs.Stuck())
	}
	if alive(int(task.Pid())) {
		t.Errorf("process %d is alive", task.Pid())
	}
	fs.Release()
	c.resume(t)
	c.awaitNoTasks(t)
	return hung
}

// Another program, such as a backup, may use the root of a container that is deleted. A busy
// mount is detached (containerd#11376, rkt#2878; requirements.md#D7).
func TestABusyRootDoesNotPreventDelete(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "exit", "0"})
		expectExit(t, c.wait(t, task), 0)
		pod, _ := c.pod(t, task.ID())
		for _, dir := range []string{
			filepath.Join(c.daemon.Bundle(task.ID()), "rootfs", "etc"),
			filepath.Join(pod, "stage1", "rootfs"),
		} {
			visitor := exec.Command("sleep", "1000")
			visitor.Dir = dir
			visitor.Env = []string{}
			if err := visitor.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = visitor.Process.Kill()
				_ = visitor.Wait()
			}()
		}
		c.drop(t, task)
		c.expectNothingLeft(t) // while the other program still runs
		if exists(c.daemon.Bundle(task.ID())) {
			t.Errorf("the bundle of %s is still there", task.ID())
		}
		again := c.containerOf(t, c.client, c.image(t, c.client), c.runtime, task.ID(), []string{"testprog", "exit", "3"})
		if err := c.runAndRemove(c.context(t), again, 3); err != nil {
			t.Errorf("another container of the same id: %v", err)
		}
	})
}

// The same as above, with `delete` in place of Delete.
func TestABusyRootDoesNotPreventADeleteByHand(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		container := c.container(t, []string{"testprog", "sleep", "1000"})
		events := c.listen(t, container.ID())
		task := c.newTask(t, container, cio.NullIO)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		visitor := exec.Command("sleep", "1000")
		visitor.Dir = filepath.Join(c.daemon.Bundle(task.ID()), "rootfs", "etc")
		visitor.Env = []string{}
		if err := visitor.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = visitor.Process.Kill()
			_ = visitor.Wait()
		}()
		if err := syscall.Kill(c.shim(t, task.ID()), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		events.await(t, "delete 137")
		c.awaitNoTasks(t)
		wait.Observe(t, "the bundle is gone", func() (bool, string) {
			return !exists(c.daemon.Bundle(task.ID())), fmt.Sprint(task.ID())
		})
		if !alive(visitor.Process.Pid) {
			t.Error("the visitor was killed")
		}
	})
}

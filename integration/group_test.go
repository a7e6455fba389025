package integration

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// groupAnnotation puts containers into one pod (requirements.md#G1).
const groupAnnotation = "io.containerd.runc.v2.group"

func group(name string) oci.SpecOpts {
	return oci.WithAnnotations(map[string]string{groupAnnotation: name})
}

func TestContainersOfOneGroupShareAShim(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		first := c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		second := c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		alone := c.running(t, []string{"testprog", "sleep", "1000"})
		shim := c.shim(t, first.ID())
		if other := c.shim(t, second.ID()); other != shim {
			t.Errorf("shims %d and %d for one group (requirements.md#G1)", shim, other)
		}
		if other := c.shim(t, alone.ID()); other == shim {
			t.Error("a container of no group is in the group's shim")
		}
		c.killAndDrop(t, first) // with its bundle (requirements.md#G6)

		c.exec(t, nil, second.ID(), "echo", "still here").must(t).mustSay(t, "still here\n")
		third := c.running(t, []string{"testprog", "exit", "5"}, group(name))
		expectExit(t, c.wait(t, third), 5)
		if other := c.shim(t, third.ID()); other != shim {
			t.Errorf("a later container has shim %d, the group's is %d", other, shim)
		}
	})
}

// killAndDrop kills a task, and deletes it and its container.
func (c *column) killAndDrop(t *testing.T, task containerd.Task) {
	t.Helper()
	exited := c.wait(t, task)
	kill(t, c.context(t), task, syscall.SIGKILL)
	expectExit(t, exited, 137)
	c.drop(t, task)
}

// drop deletes a stopped task and its container.
func (c *column) drop(t *testing.T, task containerd.Task) {
	t.Helper()
	ctx := c.context(t)
	deleteTask(t, ctx, task)
	container, err := c.client.LoadContainer(ctx, task.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
		t.Fatal(err)
	}
}

func TestTheFirstContainerMayLeaveAGroupInAnyOrder(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, leave := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			name := "group-" + c.id()
			var tasks []containerd.Task
			for range 3 {
				tasks = append(tasks, c.running(t, []string{"testprog", "sleep", "1000"}, group(name)))
			}
			shim := c.shim(t, tasks[0].ID())
			for _, i := range leave {
				c.killAndDrop(t, tasks[i])
			}
			wait.Observe(t, "the group's shim ends with its last container", func() (bool, string) {
				_, err := os.Stat(fmt.Sprintf("/proc/%d", shim))
				return err != nil, leaks.CommandLine(shim)
			})
		}
		c.expectNothingLeft(t)
	})
}

func TestContainersThatComeAndGoCostAGroupNoDescriptors(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		first := c.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		visit := func() {
			task := c.running(t, []string{"testprog", "exit", "0"}, group(name))
			expectExit(t, c.wait(t, task), 0)
			c.drop(t, task)
		}
		visit()
		shim := c.shim(t, first.ID())
		before := c.descriptors(t, shim)
		for range c.repetitions(20, 5) {
			visit()
		}
		wait.Observe(t, "the shim has as few open files as before (requirements.md#I9)", func() (bool, string) {
			now := c.descriptors(t, shim)
			return len(now) <= len(before), fmt.Sprintf("before %q\n\tnow    %q", before, now)
		})
	})
}

func TestTheSameIDInTwoNamespaces(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		other := secondNamespace(t, c)
		id := c.id()
		mine := c.containerOf(t, c.client, c.image(t, c.client), c.runtime, id, []string{"testprog", "sleep", "1000"})
		theirs := other.containerOf(t, other.client, other.image(t, other.client), c.runtime, id, []string{"testprog", "sleep", "1000"})
		a, b := c.newTask(t, mine, cio.NullIO), other.newTask(t, theirs, cio.NullIO)
		if err := a.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		if err := b.Start(other.context(t)); err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, a)
		kill(t, c.context(t), a, syscall.SIGKILL)
		expectExit(t, exited, 137)
		deleteTask(t, c.context(t), a)
		expectStatus(t, other.context(t), b, containerd.Running) // requirements.md#B5
		other.exec(t, nil, id, "echo", "untouched").must(t).mustSay(t, "untouched\n")
	})
}

// secondNamespace is the column in another namespace of its containerd.
func secondNamespace(t *testing.T, c *column) *column {
	t.Helper()
	other := &column{name: c.name, runtime: c.runtime, daemon: c.daemon.In(c.daemon.Namespace() + "-too")}
	if out, err := other.daemon.Ctr(c.context(t), "image", "import", suite.archive).CombinedOutput(); err != nil {
		t.Fatalf("import images: %v: %s", err, out)
	}
	var err error
	if other.client, err = other.daemon.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		other.cleanUp(t)
		other.client.Close()
		if err := other.scope().Forget(); err != nil {
			t.Error(err)
		}
	})
	return other
}

// runc is left out: its state directory is the same for all daemons of the machine.
func TestTwoDaemonsWithTheSameNamespaceAndID(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		other := secondDaemon(t, c)
		id := c.id()
		// Only the daemons' addresses differ. Both specs name the same cgroup.
		a := c.newTask(t, c.containerOf(t, c.client, c.image(t, c.client), c.runtime, id, []string{"testprog", "sleep", "1000"}), cio.NullIO)
		b := other.newTask(t, other.containerOf(t, other.client, other.image(t, other.client), c.runtime, id, []string{"testprog", "sleep", "1000"}), cio.NullIO)
		for _, task := range []containerd.Task{a, b} {
			if err := task.Start(c.context(t)); err != nil {
				t.Fatal(err)
			}
		}
		if x, y := c.shim(t, id), other.shim(t, id); x == y {
			t.Errorf("both have shim %d", x)
		}
		c.killAndDrop(t, a)
		expectStatus(t, other.context(t), b, containerd.Running)
		other.exec(t, nil, id, "echo", "untouched").must(t).mustSay(t, "untouched\n")
	})
}

// secondDaemon starts another containerd with the column's namespace and, as on
// a real machine, the same data directory.
func secondDaemon(t *testing.T, c *column) *column {
	t.Helper()
	d, err := startDaemon(c.context(t), "2"+cmp.Or(c.wraps, c.name), c.daemon.Namespace(), dataDir(c.daemon.Dir()))
	if err != nil {
		t.Fatal(err)
	}
	other := &column{name: c.name, runtime: c.runtime, daemon: d}
	if other.client, err = d.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := other.context(t)
		containers, err := other.client.Containers(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, container := range containers {
			remove(t, ctx, container)
		}
		other.client.Close()
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the second daemon's log ends with:\n%s", strings.TrimSpace(d.LogTail(20)))
		}
		// The snapshots are needed until here.
		if err := os.RemoveAll(d.Dir()); err != nil {
			t.Error(err)
		}
	})
	return other
}

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

// allocating is a program that the kernel kills for lack of memory in a container with 32 MiB,
// after a test has made the file /tmp/go.
var allocating = []string{"sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done; exec testprog allocate 64"}

// feed makes the file /tmp/go in the root of a process.
func feed(t *testing.T, pid uint32) {
	t.Helper()
	write(t, fmt.Sprintf("/proc/%d/root/tmp/go", pid), "")
}

func count(words []string, word string) (n int) {
	for _, w := range words {
		if w == word {
			n++
		}
	}
	return n
}

// A container may make a cgroup below its own. If the kernel kills a process there for lack of
// memory, the container has an OOM event, although its init lives (containerd#8893;
// requirements.md#C5).
func TestAnOOMInANestedCgroupIsTheContainersWhoseInitLives(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		container := c.container(t, []string{"testprog", "sleep", "1000"}, oci.WithMemoryLimit(32<<20))
		events := c.listen(t, container.ID())
		task := c.newTask(t, container, cio.NullIO)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		exec, err := task.Exec(ctx, "child", process(t, ctx, task, allocating...), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		move(t, int(exec.Pid()), nested(t, exec.Pid()))
		feed(t, exec.Pid())
		expectExit(t, exited, 137)
		events.await(t, "exit child 137")
		words := events.words()
		if oom := slices.Index(words, "oom"); oom < 0 || oom > slices.Index(words, "exit child 137") {
			t.Errorf("events %q", words)
		}
		expectStatus(t, ctx, task, containerd.Running)
		if f := readFigures(t, c, task); f.kills == 0 {
			t.Errorf("figures %+v after it (requirements.md#C4)", f)
		}
		gone := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, gone, 137)
		deleteTask(t, ctx, task) // with the nested cgroup
	})
}

// nested makes a cgroup with a memory controller below that of a process.
func nested(t *testing.T, pid uint32) string {
	t.Helper()
	root := "/sys/fs/cgroup/memory"
	if !exists(root) {
		root = "/sys/fs/cgroup"
	}
	dir := filepath.Join(root, cgroupOf(t, int(pid), "memory"), "nested")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// An OOM kill is reported for that container of the pod whose process was killed
// (containerd#8180, containerd#12372; requirements.md#C5).
func TestAnOOMIsThatOfOneContainerOfThePod(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		var tasks []containerd.Task
		var events []*taskEvents
		for range 3 {
			container := c.container(t, allocating, group(name), oci.WithMemoryLimit(32<<20))
			events = append(events, c.listen(t, container.ID()))
			task := c.newTask(t, container, cio.NullIO)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			tasks = append(tasks, task)
		}
		for i := range 2 {
			exited := c.wait(t, tasks[i])
			feed(t, tasks[i].Pid())
			expectExit(t, exited, 137)
			events[i].await(t, "exit init 137")
			for other, e := range events {
				if n := count(e.words(), "oom"); (n > 0) != (other <= i) {
					t.Errorf("after the end of container %d, number %d has the events %q", i, other, e.words())
				}
			}
		}
		expectStatus(t, ctx, tasks[2], containerd.Running)
	})
}

// A container may run out of memory at once. Its OOM event always comes before its exit
// (containerd#12714; requirements.md#C5).
func TestAnOOMRightAfterTheStartComesBeforeTheExit(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		for range c.often(15, 4, 200) {
			container := c.container(t, []string{"testprog", "allocate", "64"}, oci.WithMemoryLimit(16<<20))
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
			if start, oom, exit := slices.Index(words, "start"), slices.Index(words, "oom"), slices.Index(words, "exit init 137"); oom < start || oom > exit {
				t.Fatalf("events %q", words)
			}
		}
	})
}

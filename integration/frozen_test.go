package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

// endless starts containers in one group that end on SIGTERM, the first one with code 1, and
// begins to wait for them.
func (c *column) endless(t *testing.T, n int) (tasks []containerd.Task, exited []<-chan containerd.ExitStatus) {
	t.Helper()
	name := "group-" + c.id()
	for i := range n {
		task := c.task(t, exitsOnTerm(i+1), group(name))
		exited = append(exited, c.wait(t, task))
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	return tasks, exited
}

// A shim that does not run for a while, because the machine swaps or is busy, reports every
// exit when it runs again. No exit has to be read within a certain time (containerd#13849,
// containerd#12678; requirements.md#N1).
func TestExitsThatAStoppedShimCouldNotSeeAreSeenLater(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		tasks, exited := c.endless(t, c.often(8, 5, 20))
		shim := c.shim(t, tasks[0].ID())
		if err := syscall.Kill(shim, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		resume := func() { _ = syscall.Kill(shim, syscall.SIGCONT) }
		defer resume()
		for _, task := range tasks {
			terminate(t, int(task.Pid()))
		}
		time.Sleep(time.Duration(c.often(1, 1, 5)) * time.Second)
		resume()
		for i, task := range tasks {
			expectExit(t, exited[i], uint32(i+1))
			expectStatus(t, c.context(t), task, containerd.Stopped)
		}
	})
}

// As before, with a hundredth of a processor for the shim and its stage1 (requirements.md#T5).
func TestAShimWithoutProcessorTimeSeesEveryExit(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		tasks, exited := c.endless(t, c.often(5, 3, 20))
		_, record := c.pod(t, c.groupOf(t, tasks[0]))
		release := c.limitCPU(t, c.shim(t, tasks[0].ID()), record.Supervisor.PID)
		defer release()
		for i, task := range tasks {
			terminate(t, int(task.Pid()))
			expectExit(t, exited[i], uint32(i+1))
			expectStatus(t, c.context(t), task, containerd.Stopped)
		}
	})
}

func (c *column) groupOf(t *testing.T, task containerd.Task) string {
	t.Helper()
	spec, err := task.Spec(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	return spec.Annotations[groupAnnotation]
}

// limitCPU leaves processes one percent of a processor, until release is called.
func (c *column) limitCPU(t *testing.T, pids ...int) (release func()) {
	t.Helper()
	root, file, quota := "/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "1000"
	if !exists(root) {
		root, file, quota = "/sys/fs/cgroup", "cpu.max", "1000 100000"
	}
	parent := filepath.Join(root, c.daemon.Namespace())
	dir := filepath.Join(parent, "limited")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpu"), 0) // version 1 has no such file
	former := map[int]string{}
	release = func() {
		for pid, path := range former {
			move(t, pid, filepath.Join(root, path))
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(quota), 0); err != nil {
		release()
		if errors.Is(err, os.ErrNotExist) {
			t.Skipf("the machine limits no processor time: %v", err)
		}
		t.Fatal(err)
	}
	for _, pid := range pids {
		former[pid] = cgroupOf(t, pid, "cpu")
		move(t, pid, dir)
	}
	return release
}

// cgroupOf returns the path of a process's cgroup in a controller's hierarchy, or in that of
// version 2.
func cgroupOf(t *testing.T, pid int, controller string) string {
	t.Helper()
	unified := ""
	for l := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/cgroup", pid))) {
		f := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2]
		}
		if f[0] == "0" {
			unified = f[2]
		}
	}
	return unified
}

func move(t *testing.T, pid int, dir string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Appendln(nil, pid), 0)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("move %d to %s: %v", pid, dir, err)
	}
}

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// rootCgroups returns the lines of /proc/PID/cgroup that name a root cgroup, or the cgroup that
// systemd-nspawn shares among containers.
func rootCgroups(t *testing.T, pid int) (found []string) {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/cgroup", pid))) {
		line = strings.TrimSpace(line)
		if path := line[strings.LastIndex(line, ":")+1:]; path == "/" || path == "/payload" {
			found = append(found, line)
		}
	}
	return found
}

// outOfRoots checks that a process of a container is in no root cgroup of any hierarchy.
func outOfRoots(t *testing.T, what string, pid int) {
	t.Helper()
	if found := rootCgroups(t, pid); len(found) > 0 {
		t.Errorf("%s, process %d, is in %q", what, pid, found)
	}
}

// execsOutOfRoots checks an exec, and one with a terminal.
func (c *column) execsOutOfRoots(t *testing.T, task containerd.Task) {
	t.Helper()
	ctx := c.context(t)
	e, err := task.Exec(ctx, "exec", process(t, ctx, task, "sleep", "1000"), cio.NullIO)
	must(t, err)
	must(t, e.Start(ctx))
	outOfRoots(t, "an exec of "+task.ID(), int(e.Pid()))
	c.end(t, e)
	e = c.execOnTerminal(t, task, new(strings.Builder), "sleep", "1000")
	outOfRoots(t, "an exec with a terminal of "+task.ID(), int(e.Pid()))
	c.end(t, e)
}

// execOnTerminal starts an exec with a terminal, and copies its output.
func (c *column) execOnTerminal(t *testing.T, task containerd.Task, out *strings.Builder, args ...string) containerd.Process {
	t.Helper()
	ctx := c.context(t)
	spec := process(t, ctx, task, args...)
	spec.Terminal = true
	e, err := task.Exec(ctx, "terminal", spec, cio.NewCreator(cio.WithStreams(nil, out, nil), cio.WithTerminal, cio.WithFIFODir(fifoDir(c.daemon.Dir()))))
	must(t, err)
	must(t, e.Start(ctx))
	return e
}

// end kills and deletes a task or an exec.
func (c *column) end(t *testing.T, p containerd.Process) {
	t.Helper()
	ctx := c.context(t)
	exited := c.wait(t, p)
	kill(t, ctx, p, syscall.SIGKILL)
	expectExit(t, exited, 137)
	deleteTask(t, ctx, p)
}

// Root in a container without a seccomp profile can mount each hierarchy in namespaces of its own, and sees
// everything below the cgroup in which it is: from a root cgroup, all containers and services of the host.
func TestNoProcessOfAContainerIsInARootCgroup(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"sleep", "1000"})
		outOfRoots(t, "the first process", int(task.Pid()))
		c.execsOutOfRoots(t, task)
	})
}

func TestNoProcessOfAPodWithAHolderIsInARootCgroup(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		b := c.startBox(t, nil)
		outOfRoots(t, "the holder", b.pid)
		var tasks []containerd.Task
		for _, which := range []string{"first", "second"} {
			task := b.runMember(t, []string{"sleep", "1000"})
			outOfRoots(t, "the "+which+" app", int(task.Pid()))
			c.execsOutOfRoots(t, task)
			tasks = append(tasks, task)
		}
		for _, task := range tasks {
			exited := c.wait(t, task)
			kill(t, c.context(t), task, syscall.SIGKILL)
			expectExit(t, exited, 137)
			c.drop(t, task)
		}
	})
}

func TestNoDebugAppIsInARootCgroup(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		if c.wraps == "runsc" {
			t.Skip("a debug app cannot be in the PID namespace of gVisor's container")
		}
		d := c.service(t)
		cmd := d.begin(t, "sleep 1000")
		pid := d.debugApp(t)
		outOfRoots(t, "the debug app", pid)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		d.expectNoDebugApp(t, pid)
	})
}

// victimCgroup makes a cgroup in every hierarchy, as another container has it.
func (c *column) victimCgroup(t *testing.T) (name string, remove func()) {
	t.Helper()
	name = fmt.Sprintf("rktit%d%svictim", os.Getpid(), c.name)
	procs, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	must(t, err)
	if unified() {
		procs = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, file := range procs {
		must(t, os.Mkdir(filepath.Join(filepath.Dir(file), name), 0o755))
	}
	return name, func() {
		for _, file := range procs {
			must(t, os.Remove(filepath.Join(filepath.Dir(file), name)))
		}
	}
}

// A container of ctr's has default capabilities and no seccomp profile.
func TestContainerRootReachesNoCgroupOfOthersInNamespacesOfItsOwn(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		victim, remove := c.victimCgroup(t)
		defer remove()
		reaches := func(what, output string) {
			t.Helper()
			if found, ok := strings.CutSuffix(output, "done\n"); !ok || found != "" {
				t.Errorf("%s, which looks for %s:\n%s", what, victim, output)
			}
		}
		var out streams
		task := c.newTask(t, c.container(t, []string{"testprog", "reach", victim}), out.creator(c, nil))
		exited := c.wait(t, task)
		must(t, task.Start(c.context(t)))
		expectExit(t, exited, 0)
		awaitOutput(t, task)
		deleteTask(t, c.context(t), task)
		reaches("the first process", out.stdout.String())

		other := c.running(t, []string{"sleep", "1000"})
		reaches("an exec", c.exec(t, nil, other.ID(), "testprog", "reach", victim).must(t).stdout)
		var shown strings.Builder
		e := c.execOnTerminal(t, other, &shown, "testprog", "reach", victim)
		expectExit(t, c.wait(t, e), 0)
		awaitOutput(t, e)
		deleteTask(t, c.context(t), e)
		reaches("an exec with a terminal", strings.ReplaceAll(shown.String(), "\r", ""))
	})
}

// `delete` has only the disk. Records of earlier releases do not say that the directory in the version 2
// hierarchy of a hybrid host was made.
func TestDeleteAloneRemovesTheCgroupsOfBothVersions(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		t.Run(fmt.Sprintf("earlier release %v", earlier), func(t *testing.T) {
			eachOfOurs(t, func(t *testing.T, c *column) {
				task := c.running(t, []string{"sleep", "1000"})
				id := task.ID()
				if !unified() && exists("/sys/fs/cgroup/unified/cgroup.procs") && !exists(filepath.Join("/sys/fs/cgroup/unified", c.daemon.Namespace(), id)) {
					t.Error("it has no cgroup of version 2")
				}
				shim := c.shim(t, id)
				c.daemon.Kill()
				t.Cleanup(func() {
					if !alive(c.daemon.PID()) {
						c.resume(t)
					}
				})
				must(t, syscall.Kill(shim, syscall.SIGKILL))
				if earlier {
					forgetUnified(t, c)
				}
				c.deleteByHand(t, id)
				wait.Observe(t, "nothing but bundles is left", func() (bool, string) {
					left, err := c.remains()
					left = leaks.Only(left, "process", "cgroup", "mount")
					groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + c.daemon.Namespace() + "/" + id)
					left = append(left, groups...)
					return err == nil && len(left) == 0, strings.Join(left, "\n\t")
				})
				c.resume(t)
				c.awaitNoTasks(t)
			})
		})
	}
}

// forgetUnified removes from the records of apps what an earlier release does not write.
func forgetUnified(t *testing.T, c *column) {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(dataDir(c.daemon.Dir()), "pods/run/*/appsinfo/*/app.json"))
	if err != nil || len(records) == 0 {
		t.Fatalf("records %q, %v", records, err)
	}
	for _, file := range records {
		var record map[string]any
		must(t, json.Unmarshal([]byte(read(t, file)), &record))
		delete(record["cgroup"].(map[string]any), "unifiedMade")
		text, err := json.Marshal(record)
		must(t, err)
		write(t, file, string(text))
	}
}

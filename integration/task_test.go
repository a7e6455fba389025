package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// start runs a program in the background, by `ctr run -d`, and returns its id.
func (c *column) start(t *testing.T, flags []string, args ...string) string {
	t.Helper()
	id := c.id()
	c.run(t, append([]string{"-d", "--null-io"}, flags...), id, args...).must(t)
	return id
}

// exec runs a program in a container by `ctr task exec`.
func (c *column) exec(t *testing.T, flags []string, id string, args ...string) result {
	t.Helper()
	c.serial++
	all := append([]string{"task", "exec", "--exec-id", fmt.Sprintf("e%d", c.serial), "--fifo-dir", c.fifoDir(flags)}, flags...)
	return c.ctr(t, append(append(all, id), args...)...)
}

// status returns the pid and state of a container in the output of `ctr task ls`.
func (c *column) status(t *testing.T, id string) (pid int, state string) {
	t.Helper()
	r := c.ctr(t, "task", "ls").must(t)
	for _, l := range strings.Split(r.stdout, "\n") {
		if f := strings.Fields(l); len(f) == 3 && f[0] == id {
			pid, _ = strconv.Atoi(f[1])
			return pid, f[2]
		}
	}
	return 0, ""
}

func (c *column) awaitStopped(t *testing.T, id string) {
	t.Helper()
	wait.Observe(t, id+" is stopped", func() (bool, string) {
		_, state := c.status(t, id)
		return state == "STOPPED", state
	})
}

// cgroupFile returns the path of a file of the container's cgroup. The name of the file is v1 on
// version 1, where it is in the directory of a controller, and v2 on version 2.
func (c *column) cgroupFile(t *testing.T, id, controller, v1, v2 string) string {
	t.Helper()
	pid, _ := c.status(t, id)
	for _, l := range strings.Split(read(t, fmt.Sprintf("/proc/%d/cgroup", pid)), "\n") {
		f := strings.SplitN(l, ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return filepath.Join("/sys/fs/cgroup", controller, f[2], v1)
		}
		if len(f) == 3 && f[0] == "0" {
			if p := filepath.Join("/sys/fs/cgroup", f[2], v2); exists(p) {
				return p
			}
		}
	}
	t.Fatalf("%s has no cgroup of %s", id, controller)
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestTaskExecRunsBesideTheProgram(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.start(t, []string{"--env", "FROM=container", "--hostname", "box"}, "testprog", "sleep", "1000")
		c.exec(t, nil, id, "echo", "hello").must(t).mustSay(t, "hello\n")
		c.exec(t, nil, id, "testprog", "exit", "42").mustExit(t, 42)
		c.exec(t, nil, id, "sh", "-c", "kill -9 $$").mustExit(t, 137)

		r := parseReport(t, c.exec(t, []string{"--user", "alice", "--cwd", "/tmp"}, id, "testprog", "inspect").must(t).stdout)
		if r.UID != 1000 || r.Cwd != "/tmp" || r.Hostname != "box" || !slices.Contains(r.Env, "FROM=container") {
			t.Errorf("uid %d, cwd %s, hostname %s, env %q", r.UID, r.Cwd, r.Hostname, r.Env)
		}
		if len(r.FDs) != 3 {
			t.Errorf("descriptors %v (requirements.md#I8)", r.FDs)
		}
		pid, _ := c.status(t, id)
		for kind, ns := range r.Namespaces {
			if init, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind)); init != ns {
				t.Errorf("%s namespace %s, the container's is %s", kind, ns, init)
			}
		}
		if want := strings.TrimSpace(read(t, fmt.Sprintf("/proc/%d/cgroup", pid))); sameCgroup(r.Cgroup, want) != nil {
			t.Error(sameCgroup(r.Cgroup, want))
		}
	})
}

// sameCgroup compares /proc/self/cgroup, as a process reads it, with its container's cgroup on
// the host. In a cgroup namespace the process's own cgroup is "/"; without one both are the
// same.
func sameCgroup(inside []string, container string) error {
	outside := strings.Split(container, "\n")
	for i, l := range inside {
		if !strings.HasSuffix(l, ":/") && !slices.Contains(outside, l) {
			return fmt.Errorf("cgroup %d is %s; the container's are %q", i, l, outside)
		}
	}
	return nil
}

func TestTaskExecInheritsTheMountsAndRootOfTheContainer(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "sh", "-c", "echo made > /made; mount -t tmpfs none /mnt 2>/dev/null; sleep 1000")
		wait.Observe(t, "an exec sees what the program made", func() (bool, string) {
			r := c.exec(t, nil, id, "cat", "/made")
			return r.stdout == "made\n", r.stdout + r.stderr
		})
	})
}

// lateEOF is a reader that reports the end of file after a while.
type lateEOF time.Duration

func (d lateEOF) Read([]byte) (int, error) {
	time.Sleep(time.Duration(d))
	return 0, io.EOF
}

func TestTaskExecWithAnInput(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "sleep", "1000")
		args := []string{"task", "exec", "--exec-id", "in", "--fifo-dir", fifoDir(c.daemon.Dir()), id, "cat"}
		// ctr misses the end of its input if it comes before ctr knows the exec.
		input := io.MultiReader(strings.NewReader("through and through\n"), lateEOF(2*time.Second))
		c.ctrWith(t, input, args...).must(t).mustSay(t, "through and through\n")
	})
}

func TestTaskExecOfWhatCannotBeExecuted(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "sleep", "1000")
		for _, bad := range badPrograms {
			r := c.exec(t, nil, id, bad.program)
			if r.code == 0 || !strings.Contains(r.stderr, bad.text(c)) {
				t.Errorf("exec of %s: code %d, stderr %q, want %q in it", bad.program, r.code, r.stderr, bad.text(c))
			}
		}
		// The container still works.
		c.exec(t, nil, id, "echo", "alive").must(t).mustSay(t, "alive\n")
	})
}

func TestTaskKillSendsTheSignal(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		log := filepath.Join(t.TempDir(), "log")
		id := c.id()
		c.run(t, []string{"-d", "--log-uri", "file://" + log}, id, "testprog", "signals").must(t)
		awaitText(t, log, "ready\n")
		for _, s := range []string{"HUP", "SIGUSR1", "28", "40", "TERM"} {
			c.ctr(t, "task", "kill", "-s", s, id).must(t)
			want := map[string]string{"HUP": "\n1\n", "SIGUSR1": "\n10\n", "28": "\n28\n", "40": "\n40\n", "TERM": "\n15\n"}[s]
			awaitText(t, log, want)
		}
		c.awaitStopped(t, id)
		r := c.ctr(t, "task", "kill", "-s", "KILL", id)
		if r.code == 0 || !strings.Contains(r.stderr, "not found") && !strings.Contains(r.stderr, "already finished") {
			t.Errorf("kill of a stopped task: code %d, %q (requirements.md#T9)", r.code, r.stderr)
		}
	})
}

func awaitText(t *testing.T, file, text string) {
	t.Helper()
	wait.Observe(t, fmt.Sprintf("%q is in %s", text, filepath.Base(file)), func() (bool, string) {
		b, _ := os.ReadFile(file)
		return strings.Contains(string(b), text), string(b)
	})
}

func TestTaskKillAllReachesEveryProcess(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "sh", "-c", "trap '' HUP; testprog ignore-term & testprog sleep 1000 & wait; sleep 1000")
		wait.Observe(t, "all processes run", func() (bool, string) {
			r := c.ctr(t, "task", "ps", id)
			return strings.Count(r.stdout, "\n") >= 4, r.stdout
		})
		c.ctr(t, "task", "kill", "--all", "-s", "KILL", id).must(t)
		c.awaitStopped(t, id)
		c.deleteTask(t, id, 137)
	})
}

func TestTaskPsListsInitChildrenAndExecs(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "fork", "2")
		c.exec(t, []string{"-d"}, id, "testprog", "sleep", "1000").must(t)
		pid, _ := c.status(t, id)
		wait.Observe(t, "init, two children and one exec are listed (requirements.md#T6)", func() (bool, string) {
			r := c.ctr(t, "task", "ps", id).must(t)
			return strings.Count(r.stdout, "\n") == 5 && strings.Contains(r.stdout, fmt.Sprint(pid)) && strings.Contains(r.stdout, fmt.Sprintf("e%d", c.serial)), r.stdout
		})
	})
}

func TestTaskLsShowsEveryState(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "sleep", "1000")
		expect := func(want string) {
			t.Helper()
			pid, state := c.status(t, id)
			if state != want || pid == 0 {
				t.Errorf("pid %d, state %s, want %s", pid, state, want)
			}
		}
		expect("RUNNING")
		c.ctr(t, "task", "pause", id).must(t)
		expect("PAUSED")
		c.ctr(t, "task", "resume", id).must(t)
		expect("RUNNING")
		c.exec(t, nil, id, "true").must(t)
		c.ctr(t, "task", "kill", "-s", "KILL", id).must(t)
		c.awaitStopped(t, id)
		c.deleteTask(t, id, 137)
		if _, state := c.status(t, id); state != "" {
			t.Errorf("after delete: %s", state)
		}
	})
}

func TestAPausedTaskCanBeKilled(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "fork", "1")
		c.ctr(t, "task", "pause", id).must(t)
		c.ctr(t, "task", "kill", "-s", "KILL", id).must(t)
		c.awaitStopped(t, id)
	})
}

func TestTaskDelete(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "sleep", "1000")
		if r := c.ctr(t, "task", "delete", id); r.code == 0 {
			t.Error("a running task was deleted without --force (requirements.md#T3)")
		}
		if _, state := c.status(t, id); state != "RUNNING" {
			t.Errorf("after the refused delete: %s", state)
		}
		c.deleteTask(t, id, 137, "--force")
		c.ctr(t, "container", "delete", id).must(t)
		c.expectNothingLeft(t)
	})
}

func TestAnIDCanBeUsedAgain(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.id()
		for i := range 3 {
			c.run(t, []string{"--rm"}, id, "testprog", "exit", strconv.Itoa(i+7)).mustExit(t, i+7)
		}
	})
}

func TestTaskMetrics(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "fork", "1")
		wait.Observe(t, "the metrics name the container, its memory and pids", func() (bool, string) {
			r := c.ctr(t, "task", "metrics", id).must(t)
			ok := strings.Contains(r.stdout, id) && strings.Contains(r.stdout, "memory.") && strings.Contains(r.stdout, "pids.current")
			return ok, r.stdout
		})
	})
}

// deleteTask deletes a task by ctr, which prints an exit code other than 0.
func (c *column) deleteTask(t *testing.T, id string, code int, flags ...string) {
	t.Helper()
	r := c.ctr(t, append(append([]string{"task", "delete"}, flags...), id)...).must(t)
	if want := fmt.Sprintf("exit code %d", code); !strings.Contains(r.stderr, want) {
		t.Errorf("delete of %s: %q, want %q in it", id, r.stderr, want)
	}
}

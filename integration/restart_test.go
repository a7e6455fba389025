package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// restart kills containerd, calls absent, and starts containerd again.
func (c *column) restart(t *testing.T, absent func()) {
	t.Helper()
	c.daemon.Kill()
	if absent != nil {
		absent()
	}
	c.resume(t)
}

// resume starts containerd again, as the second half of restart.
func (c *column) resume(t *testing.T) {
	t.Helper()
	if err := c.daemon.Resume(c.context(t)); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "the client is connected again", func() (bool, string) {
		ok, err := c.client.IsServing(c.context(t))
		return ok, fmt.Sprint(err)
	})
}

func TestARestartedContainerdFindsItsTasks(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		log := filepath.Join(t.TempDir(), "log")
		id := c.id()
		c.run(t, []string{"-d", "--log-uri", "file://" + log}, id, "sh", "-c", "while :; do echo tick; sleep 0.1; done").must(t)
		pid, _ := c.status(t, id)
		shim := c.shim(t, id)
		var ticks int
		c.restart(t, func() {
			ticks = strings.Count(read(t, log), "tick")
			wait.Observe(t, "the output goes on without containerd", func() (bool, string) {
				now := strings.Count(read(t, log), "tick")
				return now > ticks+3, fmt.Sprint(now)
			})
		})
		if now, state := c.status(t, id); now != pid || state != "RUNNING" {
			t.Errorf("pid %d, state %s; before it was %d (requirements.md#R1)", now, state, pid)
		}
		if now := c.shim(t, id); now != shim {
			t.Errorf("shim %d, before it was %d", now, shim)
		}
		c.exec(t, nil, id, "echo", "still here").must(t).mustSay(t, "still here\n")
		c.ctr(t, "task", "kill", "-s", "KILL", id).must(t)
		c.awaitStopped(t, id)
		c.deleteTask(t, id, 137)
	})
}

// runc is left out: if a container of runc's shim ends while containerd is down, its exit code
// is lost (requirements.md#R3).
func TestAnExitInContainerdsAbsenceIsKept(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		task := c.newTask(t, c.container(t, exitsOnTerm(42)), cio.NullIO)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		c.restart(t, func() { terminate(t, int(task.Pid())) })
		if _, state := c.status(t, task.ID()); state != "STOPPED" {
			t.Errorf("state %q (requirements.md#R3)", state)
		}
		s := deleteTask(t, c.context(t), task)
		if s.ExitCode() != 42 {
			t.Errorf("exit code %d", s.ExitCode())
		}
	})
}

// containerd waits five seconds for the server of each task when it starts, and then calls `delete`. A
// server that was stopped for longer, by a signal or by a node without time for it, is spoken to by
// nothing else.
func TestAServerThatStopsWhileContainerdStartsLeavesNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		goesOn := map[string]bool{"goes on later": true}
		if *longFlag {
			goesOn["never goes on"] = false // it is killed after 40 seconds
		}
		for name, later := range goesOn {
			id := c.start(t, nil, "testprog", "sleep", "1000")
			server := c.shim(t, id)
			c.restart(t, func() {
				if err := unix.Kill(server, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				wait.Observe(t, "the server is stopped", func() (bool, string) {
					status := read(t, fmt.Sprintf("/proc/%d/status", server))
					return strings.Contains(status, "State:\tT"), status
				})
			})
			wait.Observe(t, "containerd has given up on the server", func() (bool, string) {
				list := c.ctr(t, "task", "ls").stdout
				return !strings.Contains(list, id), list
			})
			if later {
				if err := unix.Kill(server, unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			deadline := time.Now().Add(2 * time.Minute)
			for !errors.Is(unix.Kill(server, 0), unix.ESRCH) && time.Now().Before(deadline) {
				time.Sleep(50 * time.Millisecond)
			}
			c.ctr(t, "container", "rm", id).must(t)
			c.expectNothingLeft(t)
			t.Logf("a server that %s has left nothing", name)
		}
	})
}

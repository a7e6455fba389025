package integration

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// rktctl calls the operator's command with the data directory of the column's containerd.
func (c *column) rktctl(t *testing.T, args ...string) result {
	t.Helper()
	return c.rktctlWith(t, nil, args...)
}

func (c *column) rktctlWith(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(c.context(t), filepath.Join(suite.shims, "rktctl"), args...)
	tmp := t.TempDir()
	cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(c.daemon.Dir()), "TMPDIR="+tmp)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	r := result{args: append([]string{"rktctl"}, args...)}
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("rktctl: %v", err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("%q leaves %v in the directory of temporary files, %v", args, left, err)
	}
	r.code, r.stdout, r.stderr = cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	return r
}

// shownPod has the fields of `rktctl status` that the tests read.
type shownPod struct {
	UUID, State, Sandbox string
	Shim                 struct{ Alive bool }
	Problems             []string
	Apps                 []struct {
		ID, State string
		Process   struct{ PID int }
		Exit      *struct{ Code int }
	}
}

func (p shownPod) app(id string) (state string) {
	for _, a := range p.Apps {
		if a.ID == id {
			return a.State
		}
	}
	return "gone"
}

// shown calls `rktctl status` for a pod.
func (c *column) shown(t *testing.T, word string) (p shownPod) {
	t.Helper()
	r := c.rktctl(t, "status", "--output", "json", word).must(t)
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	if len(p.Problems) > 0 {
		t.Errorf("problems: %q", p.Problems)
	}
	return p
}

func TestRktctlShowsPodsFromTheirFiles(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		first := c.running(t, []string{"testprog", "fork", "2"}, group(name))
		second := c.task(t, []string{"testprog", "sleep", "1000"}, group(name))
		pod := c.shown(t, name)
		if pod.State != "running" || !pod.Shim.Alive || pod.Sandbox != name || len(pod.Apps) != 2 ||
			pod.app(first.ID()) != "running" || pod.app(second.ID()) != "created" {
			t.Errorf("%+v", pod)
		}
		if pid := pod.Apps[0].Process.PID; pid != int(first.Pid()) {
			t.Errorf("process %d, containerd has %d", pid, first.Pid())
		}
		if by := c.shown(t, pod.UUID[:13]); by.UUID != pod.UUID {
			t.Errorf("the beginning of the UUID names %s", by.UUID)
		}
		if err := first.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		if got := c.shown(t, name).app(first.ID()); got != "paused" {
			t.Errorf("a paused app is %s", got)
		}
		if err := first.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		c.rktctl(t, "list").must(t).mustContain(t, pod.UUID)
		wait.Observe(t, "a program and the two that it has started", func() (bool, string) {
			r := c.rktctl(t, "ps", first.ID()).must(t)
			return strings.Count(r.stdout, "\n") == 4, r.stdout
		})
		c.rktctl(t, "top", name).must(t).mustContain(t, "MiB")
		events := c.rktctl(t, "events", name).must(t)
		for _, want := range []string{first.ID() + ": created", first.ID() + ": started", second.ID() + ": created", ": app/add done after", "run ready after"} {
			events.mustContain(t, want)
		}
		exited := c.wait(t, first)
		kill(t, ctx, first, syscall.SIGKILL)
		expectExit(t, exited, 137)
		pod = c.shown(t, first.ID())
		if pod.app(first.ID()) != "exited" || pod.Apps[0].Exit == nil || pod.Apps[0].Exit.Code != 137 {
			t.Errorf("%+v", pod)
		}
		c.drop(t, first)
		if pod = c.shown(t, name); pod.app(first.ID()) != "gone" {
			t.Errorf("%+v", pod)
		}
		exited = c.wait(t, second)
		kill(t, ctx, second, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, second)
		wait.Observe(t, "the pod is not listed any more", func() (bool, string) {
			r := c.rktctl(t, "list").must(t)
			return !strings.Contains(r.stdout, pod.UUID), r.stdout
		})
		if r := c.rktctl(t, "status", name); r.code != 1 || !strings.Contains(r.stderr, "no pod") {
			t.Errorf("%+v", r)
		}
	})
}

// containerd is stopped, so that it does not delete the containers of a dead shim at once.
func TestRktctlShowsAPodWithoutAShimUntilContainerdDeletesIt(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		daemon, shim := c.daemon.PID(), c.shim(t, task.ID())
		_, record := c.pod(t, task.ID())
		pod := c.shown(t, task.ID())
		must(t, syscall.Kill(daemon, syscall.SIGSTOP))
		resume := func() { _ = syscall.Kill(daemon, syscall.SIGCONT) }
		defer resume()
		must(t, syscall.Kill(shim, syscall.SIGKILL))
		wait.Observe(t, "the shim is dead", func() (bool, string) {
			pod = c.shown(t, task.ID())
			return !pod.Shim.Alive, pod.State
		})
		if pod.State != "running" || pod.app(task.ID()) != "running" || !alive(int(task.Pid())) {
			t.Errorf("%+v", pod)
		}
		c.rktctl(t, "list").must(t).mustContain(t, "running, no shim")
		c.rktctl(t, "gc").must(t).mustContain(t, "kept: containerd has not deleted its container "+task.ID())
		must(t, syscall.Kill(record.Supervisor.PID, syscall.SIGKILL))
		wait.Observe(t, "the supervisor is dead", func() (bool, string) {
			pod = c.shown(t, task.ID())
			return pod.State == "exited", pod.State
		})
		resume()
		wait.Observe(t, "the pod is gone", func() (bool, string) {
			r := c.rktctl(t, "list").must(t)
			return !strings.Contains(r.stdout, pod.UUID), r.stdout
		})
		if container, err := c.client.LoadContainer(c.context(t), task.ID()); err == nil {
			_ = container.Delete(c.context(t), containerd.WithSnapshotCleanup)
		}
	})
}

func TestRktctlFollowsTheEventsOfPods(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		out := filepath.Join(t.TempDir(), "events")
		file, err := os.Create(out)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		cmd := exec.CommandContext(c.context(t), filepath.Join(suite.shims, "rktctl"), "events", "--watch", "--new")
		cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(c.daemon.Dir()))
		cmd.Stdout, cmd.Stderr = file, file
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }()
		defer func() { _ = cmd.Process.Signal(syscall.SIGTERM) }()
		wait.Observe(t, "rktctl watches", func() (bool, string) {
			fds, _ := filepath.Glob("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/fd/*")
			for _, fd := range fds {
				if link, _ := os.Readlink(fd); strings.Contains(link, "inotify") {
					return true, ""
				}
			}
			return false, read(t, out)
		})
		task := c.running(t, []string{"testprog", "exit", "7"})
		expectExit(t, c.wait(t, task), 7)
		has := func(words ...string) func() (bool, string) {
			return func() (bool, string) {
				text := read(t, out)
				for _, want := range words {
					if !strings.Contains(text, want) {
						return false, text
					}
				}
				return true, ""
			}
		}
		id := task.ID()
		wait.Observe(t, "the exit", has(id+": created", id+": started", id+": exited code 7", id+": app/start done"))
		c.drop(t, task)
		wait.Observe(t, "the removal of the pod", has("stop done after", "  removed\n"))
	})
}

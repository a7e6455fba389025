package integration

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/console"
	containerd "github.com/containerd/containerd/v2/client"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// An exec of rktctl is made by the shim, as the execs of clients are, beside containerd.
func TestRktctlExecutesAProgramInAnApp(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		events := c.listen(t, task.ID())
		c.rktctl(t, "exec", task.ID(), "echo", "-n", "one  word").must(t).mustSay(t, "one  word")
		c.rktctl(t, "exec", task.ID(), "testprog", "exit", "42").mustExit(t, 42)
		c.rktctl(t, "exec", "-e", "MINE=1", "--user", "7:8", "--cwd", "/tmp", task.ID(), "sh", "-c", "echo $MINE $PWD; id -u; id -g; echo problem >&2").
			must(t).mustSay(t, "1 /tmp\n7\n8\n")
		if r := c.rktctl(t, "exec", task.ID(), "/no/such/program"); r.code != 1 || !strings.Contains(r.stderr, "/no/such/program") || r.stdout != "" {
			t.Errorf("%+v", r)
		}
		if r := c.rktctlWith(t, strings.NewReader("through the fifo\n"), "exec", "-i", task.ID(), "cat"); r.code != 0 || r.stdout != "through the fifo\n" {
			t.Errorf("%+v", r)
		}
		if r := c.rktctlWith(t, strings.NewReader("echo from a shell; exit 3\n"), "enter", task.ID()); r.code != 3 || r.stdout != "from a shell\n" {
			t.Errorf("%+v", r)
		}
		big := c.rktctl(t, "exec", task.ID(), "testprog", "bytes", "3000000").must(t)
		if len(big.stdout) != 3000000 {
			t.Errorf("%d bytes of 3000000", len(big.stdout))
		}

		// containerd gets the events of such an exec and its own execs work as before.
		c.exec(t, nil, task.ID(), "echo", "of the client").must(t).mustSay(t, "of the client\n")
		expectStatus(t, ctx, task, containerd.Running)
		for _, w := range events.words() {
			if strings.HasPrefix(w, "exit init") || strings.HasPrefix(w, "delete") {
				t.Errorf("event %q of an app that runs", w)
			}
		}
		c.rktctl(t, "events", task.ID()).must(t).mustContain(t, ", exec rktctl-")
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		if r := c.rktctl(t, "exec", task.ID(), "true"); r.code != 1 || !strings.Contains(r.stderr, "stopped") {
			t.Errorf("in an app that has ended: %+v", r)
		}
		c.drop(t, task)
	})
}

func TestTheExitOfAnAppWaitsForAnExecOfRktctl(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		start := func() (*exec.Cmd, *strings.Builder) {
			cmd := exec.CommandContext(ctx, filepath.Join(suite.shims, "rktctl"), "exec", task.ID(), "sh", "-c", "echo begun; exec sleep 1000")
			cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(c.daemon.Dir()))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			must(t, cmd.Start())
			if _, err := io.ReadFull(out, make([]byte, len("begun\n"))); err != nil {
				t.Fatal(err)
			}
			return cmd, &stderr
		}
		processes := func() int {
			pids, err := task.Pids(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return len(pids)
		}
		interrupted, _ := start()
		if n := processes(); n != 2 {
			t.Errorf("%d processes in the app", n)
		}
		must(t, interrupted.Process.Signal(syscall.SIGINT))
		_ = interrupted.Wait()
		if code := interrupted.ProcessState.ExitCode(); code != 143 {
			t.Errorf("exit code %d after an interrupt, want 143 of SIGTERM", code)
		}
		wait.Observe(t, "the program has ended", func() (bool, string) { return processes() == 1, "" })

		events := c.listen(t, task.ID())
		cmd, stderr := start()
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit code %d of an exec that was killed with its app: %s", code, stderr)
		}
		events.await(t, "exit init 137")
		for _, w := range events.words() {
			if strings.HasPrefix(w, "exit rktctl-") {
				break
			}
			if strings.HasPrefix(w, "exit init") {
				t.Errorf("the exit of the app was published before that of the exec: %q", events.words())
			}
		}
		c.drop(t, task)
	})
}

// Only a pod whose shim is dead may be stopped and removed beside containerd, which is stopped
// here, so that it does not delete the container at once.
func TestRktctlStopsAndRemovesAPodWhoseShimIsDead(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "fork", "2"})
		pod, shim := c.shown(t, task.ID()), c.shim(t, task.ID())
		events := c.listen(t, task.ID())
		for _, verb := range []string{"stop", "rm"} {
			if r := c.rktctl(t, verb, "--force", task.ID()); r.code != 1 || !strings.Contains(r.stderr, "its shim is alive") {
				t.Errorf("%+v", r)
			}
		}
		must(t, syscall.Kill(c.daemon.PID(), syscall.SIGSTOP))
		resume := func() { _ = syscall.Kill(c.daemon.PID(), syscall.SIGCONT) }
		defer resume()
		must(t, syscall.Kill(shim, syscall.SIGKILL))
		wait.Observe(t, "the shim is dead", func() (bool, string) { return !alive(shim), "" })
		if r := c.rktctl(t, "rm", task.ID()); r.code != 1 || !strings.Contains(r.stderr, "task delete --force "+task.ID()) {
			t.Errorf("%+v", r)
		}
		c.rktctl(t, "stop", "--force", pod.UUID).must(t)
		// The app has exited before its supervisor has recorded that. With oci the shim would
		// have recorded the exit.
		wait.Observe(t, "the app has ended", func() (bool, string) {
			pod = c.shown(t, pod.UUID)
			return pod.app(task.ID()) == "exited" && (c.name != "native" || pod.Apps[0].Exit != nil), pod.State
		})
		if exit := pod.Apps[0].Exit; c.name == "native" && exit.Code != 137 {
			t.Errorf("exit %+v", exit)
		}
		if alive(int(task.Pid())) {
			t.Errorf("process %d is alive", task.Pid())
		}
		c.rktctl(t, "rm", "--force", pod.UUID).must(t)
		if r := c.rktctl(t, "status", pod.UUID); r.code != 1 || !strings.Contains(r.stderr, "no pod") {
			t.Errorf("%+v", r)
		}
		resume()
		events.await(t, "delete 137") // of containerd, which finds the exit in the bundle
		container, err := c.client.LoadContainer(c.context(t), task.ID())
		if err == nil {
			err = container.Delete(c.context(t), containerd.WithSnapshotCleanup)
		}
		if err != nil {
			t.Error(err)
		}
		c.expectNothingLeft(t)
	})
}

func TestRktctlEntersAnAppAtATerminal(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		term := newTerminal(t, 33, 99)
		cmd := exec.CommandContext(c.context(t), filepath.Join(suite.shims, "rktctl"), "enter", task.ID())
		cmd.Env = append(os.Environ(), "RKT_DATA_DIR="+dataDir(c.daemon.Dir()), "TMPDIR="+t.TempDir())
		cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		must(t, cmd.Start())
		term.enter(t, "until testprog winsize | grep '33 99'; do sleep 0.1; done; test -t 0 && test -t 1 && echo at a$NOTHING terminal\r")
		term.await(t, "\n33 99\n")
		term.await(t, "\nat a terminal\n")
		must(t, term.master.Resize(console.WinSize{Height: 11, Width: 77}))
		term.enter(t, "until testprog winsize | grep '11 77'; do sleep 0.1; done; exit 6\r")
		term.await(t, "\n11 77\n")
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 6 {
			t.Errorf("exit code %d", code)
		}
	})
}

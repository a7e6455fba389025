package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/defaults"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// buildNerdctl builds a real nerdctl, once per run of the suite.
var buildNerdctl = sync.OnceValues(func() (string, error) {
	return binaries.Nerdctl(context.Background(), os.Stderr)
})

// nerdctl is a real nerdctl, with files of its own, that uses a column's containerd.
type nerdctl struct {
	c    *column
	path string
	dir  string
	runs int
}

// nerdctl returns a nerdctl that no other test uses. At the end of the test it removes the
// containers that are left itself, because their hooks and loggers need its files.
func (c *column) nerdctl(t *testing.T) *nerdctl {
	t.Helper()
	path, err := buildNerdctl()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := &nerdctl{c: c, path: path, dir: t.TempDir()}
	t.Cleanup(func() {
		for _, id := range strings.Fields(n.call(t, nil, "ps", "--all", "--quiet", "--no-trunc").stdout) {
			n.call(t, nil, "rm", "--force", id)
		}
		n.removeFIFOs(t)
	})
	return n
}

func (n *nerdctl) command(ctx context.Context, args ...string) *exec.Cmd {
	d := n.c.daemon
	cmd := exec.CommandContext(ctx, n.path, append([]string{
		"--address", d.Address(), "--namespace", d.Namespace(), "--cgroup-manager", "cgroupfs",
		"--data-root", n.file("data"), "--hosts-dir", n.file("hosts"), "--cni-path", n.file("cni"), "--cni-netconfpath", n.file("net.d"),
	}, args...)...)
	cmd.Env = append(os.Environ(), "NERDCTL_TOML="+n.file("none"))
	return cmd
}

// removeFIFOs removes the fifos that nerdctl leaves after foreground runs. They are in a
// directory that all nerdctls of the machine use.
func (n *nerdctl) removeFIFOs(t *testing.T) {
	t.Helper()
	for i := range n.runs {
		id, err := os.ReadFile(n.file(fmt.Sprint("id", i)))
		if err != nil {
			continue // this run made no container
		}
		fifos, err := filepath.Glob(filepath.Join(defaults.DefaultFIFODir, "*", strings.TrimSpace(string(id))+"-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range fifos {
			if err := os.RemoveAll(filepath.Dir(path)); err != nil {
				t.Error(err)
			}
		}
	}
}

// file returns a path in the nerdctl's own directory.
func (n *nerdctl) file(name string) string { return filepath.Join(n.dir, name) }

// call calls nerdctl and returns the result, also of a failed call.
func (n *nerdctl) call(t *testing.T, stdin []byte, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	defer cancel()
	cmd := n.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("nerdctl %s: %v", strings.Join(args, " "), err)
	}
	return result{args: args, stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// run calls `nerdctl run` without a network.
func (n *nerdctl) run(t *testing.T, flags []string, program ...string) result {
	t.Helper()
	return n.call(t, nil, n.runArgs(append([]string{"--network", "none"}, flags...), program...)...)
}

func (n *nerdctl) runArgs(flags []string, program ...string) []string {
	args := append([]string{"run", "--pull", "never", "--runtime", n.c.runtime, "--cidfile", n.file(fmt.Sprint("id", n.runs))}, flags...)
	n.runs++
	return append(append(args, image.BusyboxName), program...)
}

// must calls nerdctl, expects success and returns its output.
func (n *nerdctl) must(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(n.call(t, nil, args...).must(t).stdout)
}

// inspect evaluates a template for a container.
func (n *nerdctl) inspect(t *testing.T, name, template string) string {
	t.Helper()
	return n.must(t, "inspect", "--format", template, name)
}

// With a pipe as stdout, nerdctl copies the output to its stdout and to its own logger, and the
// program sees the end of the input (requirements.md#I4, requirements.md#T11).
func TestNerdctlRunInTheForeground(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		n := c.nerdctl(t)
		r := n.run(t, []string{"--rm"}, "testprog", "both", "out", "err").must(t).mustSay(t, "out\n")
		if said := withoutLateSignals(r.stderr); said != "err\n" {
			t.Errorf("stderr %q", said)
		}
		n.run(t, []string{"--rm"}, "testprog", "exit", "42").mustExit(t, 42)
		for range 3 {
			if c.name == "runc" {
				break // with runc's shim CloseIO may come before Create is answered, and is then lost
			}
			in := []byte("short input\n")
			n.call(t, in, n.runArgs([]string{"--rm", "--interactive", "--network", "none"}, "cat")...).must(t).mustSay(t, string(in))
		}
		// Its log is not looked at: in the foreground the logger is a child of nerdctl's, which waits for
		// ever if the container has ended before the logger has found it.
		n.run(t, []string{"--name", "kept"}, "echo", "kept").must(t).mustSay(t, "kept\n")
	})
}

// withoutLateSignals removes a line that nerdctl writes if a signal fails because containerd
// has closed its connection to the shim but has not yet removed the task: see
// docs/lifecycle.md, Delete. nerdctl also forwards the SIGCHLD of its own children.
func withoutLateSignals(stderr string) string {
	var kept strings.Builder
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "forward signal child exited") || !strings.Contains(line, "ttrpc: closed") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// If a program cannot be executed, Create fails with an error that nerdctl shows.
func TestNerdctlShowsWhyAProgramCannotBeExecuted(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		n := c.nerdctl(t)
		for _, bad := range badPrograms {
			if r := n.run(t, []string{"--rm"}, bad.program); r.code != 1 || !strings.Contains(r.stderr, bad.text(c)) {
				t.Errorf("%s: exit code %d, stderr %q, want %q", bad.name, r.code, r.stderr, bad.text(c))
			}
		}
	})
}

// One container is used with logs through nerdctl's own logger (binary://), exec, top, stats,
// cp, pause, update, restart, stop and start.
func TestNerdctlWorksWithAContainer(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		n := c.nerdctl(t)
		n.run(t, []string{"--detach", "--name", "web", "--memory", "64m"}, "sh", "-c", "echo out; echo err >&2; exec sleep 1000").must(t)
		wait.Observe(t, "both streams are in the logs", func() (bool, string) {
			r := n.call(t, nil, "logs", "web").must(t)
			return r.stdout == "out\n" && r.stderr == "err\n", fmt.Sprintf("%q, %q", r.stdout, r.stderr)
		})

		n.call(t, nil, "exec", "web", "sh", "-c", "echo in; exit 7").mustExit(t, 1).mustSay(t, "in\n")
		in := []byte("short input\n")
		n.call(t, in, "exec", "--interactive", "web", "cat").must(t).mustSay(t, string(in))
		if out := n.must(t, "exec", "--user", "1000:50", "--workdir", "/tmp", "--env", "A=b", "web", "sh", "-c", `echo "$(id -u):$(id -g) $PWD $A"`); out != "1000:50 /tmp b" {
			t.Errorf("exec says %q", out)
		}

		n.must(t, "exec", "--detach", "web", "sleep", "2000")
		// nerdctl looks for the pids, which are those of the machine, among the processes of the host. In the middle of
		// execve(2) a process has no arguments.
		if c.name != "kvm" {
			wait.Observe(t, "top shows both programs", func() (bool, string) {
				top := n.must(t, "top", "web", "-o", "pid,args")
				return strings.Contains(top, "sleep 1000") && strings.Contains(top, "sleep 2000") && strings.Count(top, "\n") == 2, top
			})
		}
		var stats struct{ Name, MemUsage, PIDs string }
		if line := n.must(t, "stats", "--no-stream", "--format", "{{json .}}", "web"); json.Unmarshal([]byte(line), &stats) != nil || stats.Name != "web" ||
			!strings.HasSuffix(stats.MemUsage, "/ 64MiB") || stats.PIDs != "2" {
			t.Errorf("stats are %s", line)
		}

		write(t, n.file("given"), "given\n")
		n.must(t, "cp", n.file("given"), "web:/tmp/given")
		n.must(t, "exec", "web", "sh", "-c", "sed s/given/taken/ /tmp/given >/tmp/taken")
		n.must(t, "cp", "web:/tmp/taken", n.file("taken"))
		if got := read(t, n.file("taken")); got != "taken\n" {
			t.Errorf("copied out: %q", got)
		}

		n.must(t, "pause", "web")
		if s := n.inspect(t, "web", "{{.State.Status}}"); s != "paused" {
			t.Errorf("it is %s", s)
		}
		n.must(t, "unpause", "web")
		if s := n.inspect(t, "web", "{{.State.Status}}"); s != "running" {
			t.Errorf("it is %s", s)
		}

		update := []string{"update", "--memory", "32m", "--memory-swap", "64m", "--pids-limit", "55", "--cpu-shares", "300"}
		if c.name == "kvm" {
			if r := n.call(t, nil, append(slices.Clone(update), "--cpuset-cpus", "0", "web")...); r.code == 0 || !strings.Contains(r.stderr, "/linux/resources/cpu/cpus") {
				t.Errorf("the processors of a machine: exit code %d, %s", r.code, r.stderr)
			}
			n.must(t, append(update, "web")...)
			if used := n.must(t, "stats", "--no-stream", "--format", "{{.MemUsage}}", "web"); !strings.HasSuffix(used, "/ 32MiB") {
				t.Errorf("the memory is %s", used)
			}
		} else {
			n.must(t, append(update, "--cpuset-cpus", "0", "web")...)
			var pid uint32
			fmt.Sscan(n.inspect(t, "web", "{{.State.Pid}}"), &pid)
			for file, want := range map[cgroupFile]string{memoryLimit: "33554432", pidsLimit: "55", cpuSet: "0"} {
				if got := file.read(t, pid); got != want {
					t.Errorf("%s is %s, want %s", file.v2, got, want)
				}
			}
		}

		n.must(t, "restart", "--time", "1", "web")
		n.must(t, "kill", "--signal", "KILL", "web")
		n.must(t, "wait", "web")
		if s := n.inspect(t, "web", "{{.State.Status}} {{.State.ExitCode}}"); s != "exited 137" {
			t.Errorf("it is %s", s)
		}
		n.must(t, "start", "web")
		n.must(t, "stop", "--time", "1", "web")
		if s := n.inspect(t, "web", "{{.State.Status}} {{.State.ExitCode}}"); s != "exited 137" {
			t.Errorf("it is %s", s)
		}
	})
}

// nerdctl's createRuntime hook attaches CNI networks to the process in the state that it reads,
// and its postStop hook detaches them, once. The plugin of this test makes both ends of a veth
// in the container's namespace, and records its calls.
func TestNerdctlAttachesANetworkByItsHooks(t *testing.T) {
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("the network is made with nsenter and ip: ", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the network is made with nsenter and ip: ", err)
	}
	eachRuntime(t, func(t *testing.T, c *column) {
		n := c.nerdctl(t)
		journal := n.file("journal")
		for _, dir := range []string{"cni", "net.d"} {
			if err := os.MkdirAll(n.file(dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		executable(t, n.file("cni/pair"), `
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'; exit ;;
ADD)
	nsenter --net="$CNI_NETNS" sh -ec "
		ip link add $CNI_IFNAME type veth peer name peer
		ip addr add 10.250.9.7/24 dev $CNI_IFNAME
		ip link set peer up; ip link set $CNI_IFNAME up" >&2 || exit 1
	printf '{"cniVersion":"1.0.0","interfaces":[{"name":"%s","sandbox":"%s"}],"ips":[{"address":"10.250.9.7/24","interface":0}]}' "$CNI_IFNAME" "$CNI_NETNS" ;;
esac
echo "$CNI_COMMAND" >>`+journal+"\n")
		// A network of that name is the default network, which needs another plugin.
		write(t, n.file("net.d/pair.conflist"), `{"cniVersion":"1.0.0","name":"bridge","plugins":[{"type":"pair"}]}`)

		show := []string{"sh", "-c", "ip -o -4 addr; cat /etc/hosts"}
		out := n.call(t, nil, n.runArgs([]string{"--rm", "--network", "bridge", "--hostname", "box"}, show...)...).must(t).stdout
		for _, want := range []string{"eth0", "10.250.9.7/24", "127.0.0.1/8", "box"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
		added := func() []string {
			return slices.DeleteFunc(strings.Fields(read(t, journal)), func(s string) bool { return s == "CHECK" })
		}
		if got := added(); len(got) == 0 || got[len(got)-1] != "DEL" || countOf(got, "ADD") != 1 {
			t.Errorf("the plugin was called for %q", got)
		}

		// The same again, but the shim is killed, and `delete` runs the hook.
		if err := os.Remove(journal); err != nil {
			t.Fatal(err)
		}
		if c.name == "runc" {
			return // runc's `delete` runs no hooks
		}
		id := strings.TrimSpace(n.call(t, nil, n.runArgs([]string{"--detach", "--network", "bridge"}, "sh", "-c", "echo up; exec sleep 1000")...).must(t).stdout)
		wait.Observe(t, "the logger works", func() (bool, string) {
			logs := n.must(t, "logs", id)
			return logs == "up", logs
		})
		time.Sleep(time.Second) // the logger must have found the task: otherwise it waits for ever
		if err := syscall.Kill(c.shim(t, id), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "the network is detached", func() (bool, string) {
			got := added()
			return got[len(got)-1] == "DEL", fmt.Sprint(got)
		})
	})
}

func countOf(list []string, word string) (n int) {
	for _, s := range list {
		if s == word {
			n++
		}
	}
	return n
}

// runRestarted runs a script in a container and gives it a policy of restarts before the script
// begins. With `run --restart` containerd's monitor may look after nerdctl has made the container
// and before it has made the task. Then both make one, nerdctl fails, and the task is left, with
// any runtime.
func (n *nerdctl) runRestarted(t *testing.T, name, policy, script string) {
	t.Helper()
	n.run(t, []string{"--detach", "--name", name}, "sh", "-c", "until [ -e /begin ]; do sleep 0.05; done; "+script).must(t)
	n.must(t, "update", "--restart", policy, name)
	n.must(t, "exec", name, "touch", "/begin")
}

// containerd's own monitor restarts containers by their labels: it deletes and creates tasks of
// the same id.
func TestNerdctlRestartPolicies(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		n := c.nerdctl(t)
		// A call may arrive while the monitor replaces a task.
		try := func(args ...string) string {
			r := n.call(t, nil, args...)
			return strings.TrimSpace(r.stdout) // stderr has warnings only
		}
		n.runRestarted(t, "fails", "on-failure:2", "exit 3")
		n.runRestarted(t, "always", "always", "sleep 0.2")
		n.runRestarted(t, "stopped", "unless-stopped", "exec sleep 1000")
		var first int
		// If the monitor looks before nerdctl has made the task, the monitor makes a task, too.
		wait.Observe(t, "one runs and is killed", func() (bool, string) {
			s := try("inspect", "--format", "{{.State.Pid}}", "stopped")
			_, err := fmt.Sscan(s, &first)
			return err == nil && first > 1 && syscall.Kill(first, syscall.SIGKILL) == nil, s
		})
		wait.Observe(t, "it is tried twice again", func() (bool, string) {
			s := try("inspect", "--format", "{{.RestartCount}} {{.State.Status}} {{.State.ExitCode}}", "fails")
			return s == "2 exited 3", s
		})
		wait.Observe(t, "it is started again and again", func() (bool, string) {
			s := try("inspect", "--format", "{{.RestartCount}}", "always")
			count, err := strconv.Atoi(s)
			return err == nil && count >= 2, s
		})
		wait.Observe(t, "it is started again", func() (bool, string) {
			s := try("inspect", "--format", "{{.State.Status}} {{.State.Pid}}", "stopped")
			return strings.HasPrefix(s, "running ") && s != fmt.Sprint("running ", first), s
		})
		n.must(t, "stop", "--time", "1", "stopped")
		count := n.inspect(t, "stopped", "{{.RestartCount}}")
		n.runRestarted(t, "later", "on-failure:1", "exit 3")
		wait.Observe(t, "the monitor has looked again", func() (bool, string) {
			s := try("inspect", "--format", "{{.RestartCount}} {{.State.Status}}", "later")
			return s == "1 exited", s
		})
		if s := n.inspect(t, "stopped", "{{.State.Status}} {{.RestartCount}}"); s != "exited "+count {
			t.Errorf("what was stopped is %s, want exited %s", s, count)
		}
		for _, name := range []string{"always", "fails", "stopped", "later"} {
			wait.Observe(t, name+" is left alone", func() (bool, string) {
				r := n.call(t, nil, "update", "--restart", "no", name)
				return r.code == 0, r.stderr
			})
		}
		// A round of the monitor that has already begun could make tasks for containers that are
		// being removed. Wait until it restarts a new container: then it is in a later round,
		// in which none of the other containers is restarted. The monitor counts a restart before
		// it makes the task, so that only what the second task does shows that there is one.
		n.runRestarted(t, "last", "on-failure:1", "[ -e /again ] && exit 4; touch /again; exit 3")
		wait.Observe(t, "the monitor has begun anew", func() (bool, string) {
			s := try("inspect", "--format", "{{.RestartCount}} {{.State.Status}} {{.State.ExitCode}}", "last")
			return s == "1 exited 4", s
		})
	})
}

// atTerminal runs nerdctl as the foreground program of a terminal.
func (n *nerdctl) atTerminal(t *testing.T, term *terminal, args ...string) (ended func() int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	cmd := n.command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	return func() int {
		defer cancel()
		_ = cmd.Wait() // the exit code is enough
		return cmd.ProcessState.ExitCode()
	}
}

// With -it the container has fifos and a terminal; with --detach the logger gets the terminal
// (requirements.md#I5). The detach keys leave the container running.
func TestNerdctlAtATerminal(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		n := c.nerdctl(t)
		term := newTerminal(t, 33, 99)
		ended := n.atTerminal(t, term, n.runArgs([]string{"--rm", "-it", "--network", "none"}, "sh", "-c",
			"tty; until testprog winsize | grep '33 99'; do sleep 0.1; done; read line; echo got $line; exit 42")...)
		term.await(t, "/dev/pts/0\n33 99\n")
		term.enter(t, "some words\r")
		term.await(t, "got some words\n")
		if code := ended(); code != 42 {
			t.Errorf("exit code %d", code)
		}

		const leave = "\x10\x11" // ctrl-p, ctrl-q
		term = newTerminal(t, 24, 80)
		ended = n.atTerminal(t, term, n.runArgs([]string{"-it", "--name", "left", "--network", "none"}, "sh", "-c", "echo ready; exec sleep 1000")...)
		term.await(t, "ready\n")
		term.enter(t, leave)
		if code := ended(); code != 0 {
			t.Errorf("leaving it: exit code %d, %q", code, term.text())
		}
		if s := n.inspect(t, "left", "{{.State.Status}}"); s != "running" {
			t.Errorf("what was left is %s", s)
		}

		term = newTerminal(t, 24, 80)
		ended = n.atTerminal(t, term, "exec", "-it", "left", "sh", "-c", "tty; echo ready; read line; echo got $line")
		term.await(t, "ready\n")
		term.enter(t, "more words\r")
		term.await(t, "got more words\n")
		if code := ended(); code != 0 {
			t.Errorf("exec: exit code %d, %q", code, term.text())
		}

		n.run(t, []string{"-dt", "--name", "logged"}, "sh", "-c", "tty; exec sleep 1000").must(t)
		wait.Observe(t, "the terminal's output is logged", func() (bool, string) {
			logs := n.must(t, "logs", "logged")
			return strings.Contains(logs, "/dev/pts/0"), logs
		})
	})
}

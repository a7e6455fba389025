package integration

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// withNspawn runs a case with the runtime whose name pins the stage1 nspawn.
func withNspawn(t *testing.T, test func(t *testing.T, c *column)) {
	t.Helper()
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		t.Skip("needs systemd-nspawn")
	}
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		n := *c
		n.runtime = "io.containerd.rkt-nspawn.v1"
		defer func() { c.serial = n.serial }()
		test(t, &n)
	})
}

func TestNspawnRunsContainers(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		r := c.run(t, []string{"--rm", "--cwd", "/tmp", "--env", "A=b c", "--user", "1000:1001"}, c.id(), "sh", "-c",
			`pwd; echo "$A"; id -u; id -g; echo bad >&2; exit 42`)
		r.mustExit(t, 42).mustSay(t, "/tmp\nb c\n1000\n1001\n")
		if r.stderr != "bad\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		const size = 1<<20 + 17
		c.ctrWith(t, io.LimitReader(zeros{}, size), c.runArgs([]string{"--rm"}, c.id(), "testprog", "count-stdin")...).must(t).mustSay(t, fmt.Sprintln(size))
		for program, words := range map[string]string{"nosuchprogram": "executable file not found in $PATH", "/no/such": "no such file or directory"} {
			if r := c.run(t, []string{"--rm"}, c.id(), program); r.code == 0 || !strings.Contains(r.stderr, words) {
				t.Errorf("%s: exit code %d, %s; want %q", program, r.code, r.stderr, words)
			}
		}
	})
}

// The program is the first process of a container that systemd-nspawn has made, of
// which nothing else is left: not its maker, not its directory.
func TestNspawnMakesTheContainerAndLeaves(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		task := c.running(t, []string{"testprog", "sleep", "1000"}, group(name), oci.WithHostname("box"))
		dir, record := c.pod(t, name)
		for _, ns := range []string{"mnt", "pid", "ipc", "uts", "net", "cgroup"} {
			theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", task.Pid(), ns))
			if err != nil {
				t.Fatal(err)
			}
			ours, err := os.Readlink("/proc/self/ns/" + ns)
			if err != nil {
				t.Fatal(err)
			}
			if (theirs == ours) != (ns == "cgroup") { // the one that nobody has asked for
				t.Errorf("%s: the container has %s, the host %s", ns, theirs, ours)
			}
		}
		status := read(t, fmt.Sprintf("/proc/%d/status", task.Pid()))
		if !strings.Contains(status, fmt.Sprintf("\nPPid:\t%d\n", record.Supervisor.PID)) || !strings.Contains(status, "\t1\n") {
			t.Errorf("it is no first process with the supervisor %d as its parent:\n%s", record.Supervisor.PID, status)
		}
		c.exec(t, nil, task.ID(), "sh", "-c", "hostname; cat /proc/1/comm; ls /opt/stage2 /run/host 2>/dev/null; true").must(t).mustSay(t, "box\ntestprog\n")
		left, _ := filepath.Glob("/run/systemd/nspawn/propagate/rkt-" + filepath.Base(dir) + "-*")
		for _, cmdline := range globbed(t, "/proc/[0-9]*/cmdline") {
			if b, err := os.ReadFile(cmdline); err == nil && strings.HasPrefix(string(b), "systemd-nspawn\x00") && strings.Contains(string(b), filepath.Base(dir)) {
				left = append(left, cmdline)
			}
		}
		if len(left) > 0 {
			t.Errorf("systemd-nspawn has left %v", left)
		}
		exited := c.wait(t, task)
		kill(t, c.context(t), task, syscall.SIGKILL)
		expectExit(t, exited, 137)
	})
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestNspawnHasTerminals(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		term := newTerminal(t, 33, 99)
		wait := c.atTerminal(t, term, c.runArgs([]string{"--rm", "-t"}, c.id(), "sh", "-c",
			"tty; until testprog winsize | grep '33 99'; do sleep 0.1; done; read line; echo got $line; exit 42")...)
		term.await(t, "/dev/pts/0\n33 99\n")
		term.enter(t, "some words\r")
		term.await(t, "got some words\n")
		if code := wait(); code != 42 {
			t.Errorf("exit code %d", code)
		}
		id := c.start(t, nil, "testprog", "sleep", "1000")
		term = newTerminal(t, 24, 80)
		wait = c.atTerminal(t, term, "task", "exec", "--exec-id", "tty", "--fifo-dir", c.fifoDir(nil), "-t", id, "sh", "-c", "tty; read line; exit 7")
		term.await(t, "/dev/pts/0\n")
		term.enter(t, "\r")
		if code := wait(); code != 7 {
			t.Errorf("exec: exit code %d", code)
		}
	})
}

func TestNspawnExecutesAndSignals(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"sh", "-c", `trap "exit 5" USR1; while :; do sleep 0.1; done`}, oci.WithEnv([]string{"A=b"}))
		c.exec(t, []string{"--cwd", "/tmp", "--user", "1000"}, task.ID(), "sh", "-c", `pwd; id -u; echo "$A"; exit 7`).mustExit(t, 7).mustSay(t, "/tmp\n1000\nb\n")
		exec, err := task.Exec(ctx, "long", process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		ended, err := exec.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if err := exec.Kill(ctx, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		expectExit(t, ended, 137)
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGUSR1)
		expectExit(t, exited, 5)
	})
}

func TestNspawnPausesUpdatesAndCounts(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "fork", "1"}, oci.WithMemoryLimit(64<<20))
		if err := task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		expectStatus(t, ctx, task, containerd.Paused)
		if err := task.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		limit := int64(96 << 20)
		if err := task.Update(ctx, containerd.WithResources(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})); err != nil {
			t.Fatal(err)
		}
		if f := readFigures(t, c, task); f.processes == 0 || f.memory == 0 || f.limit != 96<<20 {
			t.Errorf("%+v", f)
		}
		hungry := c.task(t, []string{"testprog", "allocate", "64"}, oci.WithMemoryLimit(32<<20))
		exited := c.wait(t, hungry)
		if err := hungry.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 137)
		if f := readFigures(t, c, hungry); f.kills == 0 {
			t.Errorf("nothing says that it was for want of memory: %+v", f)
		}
	})
}

func TestNspawnHasSeveralContainersInAPod(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		first := c.running(t, []string{"testprog", "sleep", "1000"}, group(name), oci.WithHostname("box"))
		// As containers of a Kubernetes pod do.
		of := func(kind specs.LinuxNamespaceType, file string) oci.SpecOpts {
			return oci.WithLinuxNamespace(specs.LinuxNamespace{Type: kind, Path: fmt.Sprintf("/proc/%d/ns/%s", first.Pid(), file)})
		}
		second := c.running(t, []string{"testprog", "sleep", "1000"}, group(name),
			of(specs.NetworkNamespace, "net"), of(specs.IPCNamespace, "ipc"), of(specs.UTSNamespace, "uts"))
		if a, b := c.shim(t, first.ID()), c.shim(t, second.ID()); a != b {
			t.Errorf("shims %d and %d for one pod", a, b)
		}
		for ns, shared := range map[string]bool{"net": true, "ipc": true, "uts": true, "pid": false, "mnt": false} {
			a, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", first.Pid(), ns))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", second.Pid(), ns))
			if err != nil {
				t.Fatal(err)
			}
			if (a == b) != shared {
				t.Errorf("%s namespaces %s and %s, shared should be %v", ns, a, b, shared)
			}
		}
		c.exec(t, nil, second.ID(), "hostname").must(t).mustSay(t, "box\n")
		exited := c.wait(t, first)
		kill(t, ctx, first, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, first)
		c.exec(t, nil, second.ID(), "echo", "still here").must(t).mustSay(t, "still here\n")
		expectExit(t, c.wait(t, c.running(t, []string{"testprog", "exit", "5"}, group(name))), 5)
	})
}

func TestNspawnRefusesWhatItCannotMake(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		other := c.running(t, []string{"testprog", "sleep", "1000"})
		for words, opts := range map[string][]oci.SpecOpts{
			"/linux/uidMappings": {oci.WithUserNamespace([]specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}, []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}})},
			"joining a PID namespace is not supported": {oci.WithLinuxNamespace(specs.LinuxNamespace{
				Type: specs.PIDNamespace, Path: fmt.Sprintf("/proc/%d/ns/pid", other.Pid()),
			})},
			"linux.rootfsPropagation": {func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
				s.Linux.RootfsPropagation = "rshared"
				return nil
			}},
		} {
			_, err := c.container(t, []string{"true"}, opts...).NewTask(c.context(t), cio.NullIO)
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %q in it", err, words)
			}
		}
	})
}

func TestNspawnLeavesNothingWhenItsShimIsKilled(t *testing.T) {
	withNspawn(t, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		over := c.container(t, []string{"testprog", "exit", "42"}, group(name))
		events := map[string]*journal{"42": c.listen(t, over.ID())}
		first := c.newTask(t, over, cio.NullIO)
		exited := c.wait(t, first)
		if err := first.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 42)
		lives := c.container(t, []string{"testprog", "fork", "2"}, group(name))
		events["137"] = c.listen(t, lives.ID())
		task := c.newTask(t, lives, cio.NullIO)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(c.shim(t, over.ID()), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for code, j := range events {
			j.await(t, "delete "+code)
		}
		if alive(int(task.Pid())) {
			t.Errorf("process %d is alive", task.Pid())
		}
		c.awaitNoTasks(t)
	})
}

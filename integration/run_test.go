package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/inspection"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// inspect runs `testprog inspect` by `ctr run --rm` with flags.
func (c *column) inspect(t *testing.T, flags ...string) inspection.Report {
	t.Helper()
	r := c.run(t, append([]string{"--rm"}, flags...), c.id(), "testprog", "inspect", "an argument", "").must(t)
	return parseReport(t, r.stdout)
}

func parseReport(t *testing.T, text string) inspection.Report {
	t.Helper()
	var report inspection.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("output of testprog inspect: %v:\n%s", err, text)
	}
	return report
}

func TestRunReturnsTheExitCodeOfTheProgram(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		for _, code := range []int{0, 1, 42, 137, 143, 255} {
			c.run(t, []string{"--rm"}, c.id(), "testprog", "exit", fmt.Sprint(code)).mustExit(t, code)
		}
	})
}

func TestRunReturns128PlusTheSignalThatEndedTheProgram(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		// A shell that is process 1 ignores signals that it does not handle. So its child dies,
		// and the shell exits with the child's code.
		for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV} {
			script := fmt.Sprintf("sh -c 'kill -%d $$'; exit $?", s)
			c.run(t, []string{"--rm"}, c.id(), "sh", "-c", script).mustExit(t, 128+int(s))
		}
	})
}

func TestRunSeparatesStdoutAndStderr(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		r := c.run(t, []string{"--rm"}, c.id(), "testprog", "both", "to stdout", "to stderr").must(t)
		r.mustSay(t, "to stdout\n")
		if r.stderr != "to stderr\n" {
			t.Errorf("stderr %q", r.stderr)
		}
	})
}

// This client reads to the end of the stream. ctr and nerdctl of containerd 2.4 do not: they
// close their ends when they get the exit, and lose the bytes that have not arrived yet, with
// every shim.
func TestAllOutputOfAFastProgramIsDelivered(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		const size = 5 << 20
		var out streams
		task := c.newTask(t, c.container(t, []string{"testprog", "bytes", strconv.Itoa(size)}), out.creator(c, nil))
		exited := c.wait(t, task)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		ended := make(chan struct{})
		go func() {
			task.IO().Wait()
			close(ended)
		}()
		wait.For(t, "the end of the stream", ended)
		if out.stdout.Len() != size {
			t.Errorf("%d bytes of output, want %d", out.stdout.Len(), size)
		}
		c.drop(t, task)
	})
}

func TestRunHandsStdinToTheProgramUpToItsEnd(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		const size = 3<<20 + 17
		stdin := io.LimitReader(zeros{}, size)
		r := c.ctrWith(t, stdin, c.runArgs([]string{"--rm"}, c.id(), "testprog", "count-stdin")...).must(t)
		r.mustSay(t, fmt.Sprintln(size))
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestRunGivesTheProgramItsArgumentsEnvironmentAndDirectory(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.inspect(t, "--env", "GREETING=hello world", "--env", "EMPTY=", "--cwd", "/home/alice", "--hostname", "box")
		if want := []string{"testprog", "inspect", "an argument", ""}; !slices.Equal(r.Args, want) {
			t.Errorf("args %q, want %q", r.Args, want)
		}
		for _, e := range []string{"GREETING=hello world", "EMPTY="} {
			if !slices.Contains(r.Env, e) {
				t.Errorf("%q is not in the environment %q", e, r.Env)
			}
		}
		for _, e := range r.Env {
			if strings.HasPrefix(e, "RKT_") || strings.HasPrefix(e, "TTRPC_") || strings.HasPrefix(e, "_LIBCONTAINER") {
				t.Errorf("%q is not the program's business", e)
			}
		}
		if r.Cwd != "/home/alice" {
			t.Errorf("working directory %s", r.Cwd)
		}
		if r.Hostname != "box" {
			t.Errorf("hostname %s", r.Hostname)
		}
		if r.PID != 1 {
			t.Errorf("the program is process %d", r.PID)
		}
		if r.Umask != 0o022 {
			t.Errorf("umask %#o", r.Umask)
		}
	})
}

func TestRunUserIsResolvedWithItsGroups(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.inspect(t, "--user", "alice")
		if r.UID != 1000 || r.GID != 1000 || !slices.Contains(r.Groups, 50) {
			t.Errorf("uid %d, gid %d, groups %v", r.UID, r.GID, r.Groups)
		}
		if r.Status["CapEff"] != "0000000000000000" {
			t.Errorf("alice has capabilities %s", r.Status["CapEff"])
		}
		r = c.inspect(t, "--user", "4321:8765")
		if r.UID != 4321 || r.GID != 8765 {
			t.Errorf("uid %d, gid %d", r.UID, r.GID)
		}
	})
}

func TestRunInheritsNothingButItsStdio(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.inspect(t)
		for fd, to := range r.FDs {
			if fd != "0" && fd != "1" && fd != "2" {
				t.Errorf("descriptor %s is %s (requirements.md#I8)", fd, to)
			}
		}
		if len(r.FDs) != 3 {
			t.Errorf("descriptors %v", r.FDs)
		}
	})
}

func TestRunIsInNamespacesOfItsOwn(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.inspect(t)
		for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts"} {
			if host, _ := os.Readlink("/proc/self/ns/" + kind); r.Namespaces[kind] == host {
				t.Errorf("%s namespace is the host's", kind)
			}
		}
		r = c.inspect(t, "--net-host")
		if host, _ := os.Readlink("/proc/self/ns/net"); r.Namespaces["net"] != host {
			t.Errorf("--net-host: network namespace %s, host's %s", r.Namespaces["net"], host)
		}
	})
}

func TestRunBindMounts(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		rw, ro := t.TempDir(), t.TempDir()
		write(t, filepath.Join(ro, "given"), "from the host")
		r := c.run(t, []string{"--rm",
			"--mount", "type=bind,src=" + rw + ",dst=/made/deep/rw,options=rbind:rw",
			"--mount", "type=bind,src=" + ro + ",dst=/ro,options=rbind:ro",
			"--mount", "type=bind,src=" + filepath.Join(ro, "given") + ",dst=/etc/given,options=bind:ro",
			"--mount", "type=tmpfs,src=tmpfs,dst=/scratch,options=size=64k:mode=1770",
		}, c.id(), "sh", "-c", `
			echo back > /made/deep/rw/file
			cat /ro/given /etc/given
			touch /ro/new 2>/dev/null && echo "the read-only mount is writable"
			stat -f -c ' %T' /scratch
			stat -c %a /scratch
			dd if=/dev/zero of=/scratch/big bs=1k count=128 2>/dev/null || echo full`).must(t)
		r.mustSay(t, "from the hostfrom the host tmpfs\n1770\nfull\n")
		if got := read(t, filepath.Join(rw, "file")); got != "back\n" {
			t.Errorf("the host sees %q", got)
		}
	})
}

func TestRunReadOnlyRoot(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		c.run(t, []string{"--rm", "--read-only"}, c.id(), "sh", "-c", "touch /x 2>/dev/null || echo refused").must(t).mustSay(t, "refused\n")
	})
}

func TestRunMemoryLimitIsTheCgroups(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		const limit = 32 << 20
		id := c.id()
		c.run(t, []string{"-d", "--memory-limit", strconv.Itoa(limit)}, id, "testprog", "sleep", "1000").must(t)
		if got := read(t, c.cgroupFile(t, id, "memory", "memory.limit_in_bytes", "memory.max")); strings.TrimSpace(got) != strconv.Itoa(limit) {
			t.Errorf("limit %s, want %d", got, limit)
		}
		c.ctr(t, "task", "kill", "-s", "KILL", id).must(t)
		// The container needs more than its 64 MiB, so the kernel kills it, and the exit code
		// shows that.
		c.run(t, []string{"--rm", "--memory-limit", strconv.Itoa(limit)}, c.id(), "testprog", "allocate", "64").mustExit(t, 137)
	})
}

func TestRunWritesThePidFile(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id, file := c.id(), filepath.Join(t.TempDir(), "pid")
		c.run(t, []string{"-d", "--pid-file", file}, id, "testprog", "sleep", "1000").must(t)
		pid := strings.TrimSpace(read(t, file))
		if got := read(t, "/proc/"+pid+"/cmdline"); got != "testprog\x00sleep\x001000\x00" {
			t.Errorf("process %s is %q", pid, got)
		}
	})
}

func TestRunLogsToAFile(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id, file := c.id(), filepath.Join(t.TempDir(), "made", "log")
		c.run(t, []string{"-d", "--log-uri", "file://" + file}, id, "testprog", "both", "said to stdout", "said to stderr").must(t)
		c.awaitStopped(t, id)
		wait.Observe(t, "both streams are in the file (requirements.md#I3)", func() (bool, string) {
			b, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(b), "said to stdout\n") && strings.Contains(string(b), "said to stderr\n"), string(b)
		})
	})
}

func TestRunLogsToABinary(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id, file := c.id(), filepath.Join(t.TempDir(), "log")
		uri := "binary://" + suite.testprog + "?logger=" + file
		c.run(t, []string{"-d", "--log-uri", uri}, id, "testprog", "both", "said to stdout", "said to stderr").must(t)
		c.awaitStopped(t, id)
		c.ctr(t, "task", "delete", id).must(t)
		got := read(t, file) // Delete has waited for the logger to end
		for _, want := range []string{"logger " + c.daemon.Namespace() + " " + id + "\n", "stdout said to stdout\n", "stderr said to stderr\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in the log %q (requirements.md#I4)", want, got)
			}
		}
	})
}

func TestRunOfSixtyLayers(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		r := c.ctr(t, "run", "--rm", "--runtime", c.runtime, "--fifo-dir", fifoDir(c.daemon.Dir()), image.LayersName, c.id(),
			"sh", "-c", "cat /layers/2 /layers/59; ls /layers | wc -l").must(t)
		r.mustSay(t, fmt.Sprintf("2\n59\n%d\n", image.Layers-2))
	})
}

func TestTwentyRunsAtOnce(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		results := make(chan result)
		const n = 20
		for i := range n {
			args := c.runArgs([]string{"--rm"}, c.id(), "testprog", "exit", strconv.Itoa(i))
			go func() { results <- c.ctr(t, args...) }()
		}
		seen := map[int]int{}
		for range n {
			r := <-results
			seen[r.code]++
			if r.code >= n {
				t.Errorf("ctr %s: %d: %s", strings.Join(r.args, " "), r.code, r.stderr)
			}
		}
		for i := range n {
			if seen[i] != 1 {
				t.Errorf("exit code %d was seen %d times", i, seen[i])
			}
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

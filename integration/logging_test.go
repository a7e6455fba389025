package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// script writes a shell script to a program file, and returns its path.
func script(t *testing.T, words string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	executable(t, path, words)
	return path
}

// If a logger ends before it is ready, Create fails with the logger's name and leaves nothing.
// Only the second version of the protocol can detect this (containerd#12490;
// requirements.md#I4).
func TestALoggerThatEndsBeforeItIsReadyFailsCreate(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		logger := script(t, "exit 1")
		r := c.run(t, []string{"-d", "--log-uri", "binary-v2://" + logger}, c.id(), "true")
		if r.code == 0 || !strings.Contains(r.stderr, logger) || !strings.Contains(r.stderr, "not ready") {
			t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
		}
		c.expectNothingLeft(t)
	})
}

// In the first version of the protocol the end of a logger looks like readiness. The container
// then runs, and is not stopped by output that no process reads.
// requirements.md#I4
func TestALoggerThatEndsAtOnceDoesNotStopTheContainer(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		id := c.id()
		c.run(t, []string{"-d", "--log-uri", "binary://" + script(t, "exit 1")}, id, "sh", "-c", "testprog bytes 1000000 && exit 7").must(t)
		c.awaitStopped(t, id)
		if s := deleteTask(t, c.context(t), c.reload(t, id)); s.ExitCode() != 7 {
			t.Errorf("exit code %d", s.ExitCode())
		}
	})
}

// If a logger is never ready, Create waits for a while and then fails. The logger and the
// processes that it has started are ended.
// requirements.md#I4
func TestALoggerThatIsNeverReadyFailsCreateInTime(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		logger := script(t, "sleep 1000; true")
		began := time.Now()
		r := c.run(t, []string{"-d", "--log-uri", "binary://" + logger}, c.id(), "true")
		if r.code == 0 || !strings.Contains(r.stderr, logger) || !strings.Contains(r.stderr, "get ready") {
			t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
		}
		if took := time.Since(began); took > wait.Patience {
			t.Errorf("Create took %s", took)
		}
		c.expectNothingLeft(t)
		if found, err := commandLines(logger); err != nil || len(found) > 0 {
			t.Errorf("left: %q, %v", found, err)
		}
	})
}

// commandLines lists the processes with a text in their arguments.
func commandLines(text string) ([]string, error) {
	pids, err := leaks.PIDs()
	var found []string
	for _, pid := range pids {
		if line := leaks.CommandLine(pid); strings.Contains(line, text) {
			found = append(found, fmt.Sprintf("%d: %s", pid, line))
		}
	}
	return found, err
}

// A logger may be killed, by the kernel because memory is short or by a person. The container
// goes on, and its output goes to a new logger (containerd#11511; requirements.md#I4).
func TestTheLoggerOfAContainerMayBeKilled(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		id, file := c.id(), filepath.Join(t.TempDir(), "log")
		uri := "binary://" + suite.testprog + "?logger=" + file
		c.run(t, []string{"-d", "--log-uri", uri}, id, "sh", "-c", "while :; do echo tick; sleep 0.1; done").must(t)
		pid, _ := c.status(t, id)
		for round := range 3 {
			ticks := 0
			wait.Observe(t, "the logger writes", func() (bool, string) {
				b, err := os.ReadFile(file)
				ticks = strings.Count(string(b), "tick")
				return err == nil && strings.Count(string(b), "logger ") == round+1 && ticks > 0, fmt.Sprint(err, len(b))
			})
			time.Sleep(1100 * time.Millisecond) // a logger that ends within a second is not restarted
			killProgram(t, file)
			wait.Observe(t, "its successor writes", func() (bool, string) {
				b, err := os.ReadFile(file)
				now := strings.Count(string(b), "tick")
				return err == nil && now > ticks+3 && strings.Count(string(b), "logger ") == round+2, fmt.Sprint(err, now)
			})
		}
		if now, state := c.status(t, id); now != pid || state != "RUNNING" {
			t.Errorf("pid %d, state %s; before it was %d", now, state, pid)
		}
	})
}

// killProgram kills the process with a text in its arguments.
func killProgram(t *testing.T, text string) {
	t.Helper()
	pids, err := leaks.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if pid != os.Getpid() && strings.Contains(leaks.CommandLine(pid), text) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	}
}

// busy writes a MiB per second, in numbered lines.
const busy = `i=0; line=$(printf %01000d 0); while :; do
	n=0; while [ $n -lt 100 ]; do echo $i $line; i=$((i+1)); n=$((n+1)); done; sleep 0.1
done`

// Containers that write a MiB per second survive a long absence of containerd. They go on
// writing to a file and to a logger. They go on writing to a fifo, whose reader has died with
// containerd, when there is another reader (containerd#11805, containerd#12462;
// requirements.md#I1, requirements.md#N3).
func TestContainersThatWriteMuchOutliveAnOutage(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		dir := t.TempDir()
		toFile, toLogger := filepath.Join(dir, "file"), filepath.Join(dir, "logged")
		byFile, byLogger := c.id(), c.id()
		c.run(t, []string{"-d", "--log-uri", "file://" + toFile}, byFile, "sh", "-c", busy).must(t)
		c.run(t, []string{"-d", "--log-uri", "binary://" + suite.testprog + "?logger=" + toLogger}, byLogger, "sh", "-c", busy).must(t)
		streams := newFifos(t, false)
		reader := streams.reader(t)
		task := c.newTask(t, c.container(t, []string{"sh", "-c", busy}), streams.creator)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		first := readUntil(t, reader, func(all []byte) bool { return len(all) > 100_000 })

		c.restart(t, func() {
			before := []int64{size(t, toFile), size(t, toLogger)}
			time.Sleep(*outage / 3)
			for i, file := range []string{toFile, toLogger} {
				if grown := size(t, file) - before[i]; grown < 1<<20 {
					t.Errorf("%s has grown by %d bytes during the outage", filepath.Base(file), grown)
				}
			}
		})
		next := readUntil(t, streams.reader(t), func(all []byte) bool { return len(all) > 2_000_000 })
		expectCounted(t, "the fifo", string(first)+string(next))
		rest := streams.reader(t) // so that Delete does not wait for a reader
		defer rest.Close()
		go func() { _, _ = io.Copy(io.Discard, rest) }()
		for _, id := range []string{byFile, byLogger, task.ID()} {
			if _, state := c.status(t, id); state != "RUNNING" {
				t.Errorf("%s is %q", id, state)
			}
			_, err := c.reload(t, id).Delete(c.context(t), containerd.WithProcessKill)
			if err != nil {
				t.Errorf("delete %s: %v", id, err)
			}
		}
		expectCounted(t, "the file", read(t, toFile))
		expectCounted(t, "the logger", strings.ReplaceAll(read(t, toLogger), "stdout ", ""))
	})
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// expectCounted checks that no line of busy is missing.
func expectCounted(t *testing.T, what, text string) {
	t.Helper()
	want := 0
	for l := range strings.Lines(text) {
		number, rest, _ := strings.Cut(l, " ")
		if !strings.HasSuffix(rest, "\n") || number == "logger" {
			continue
		}
		if number != fmt.Sprint(want) || len(rest) != 1001 {
			t.Errorf("%s: line %.20q of %d bytes follows line %d", what, l, len(l), want-1)
			return
		}
		want++
	}
	if want < 100 {
		t.Errorf("%s: %d lines", what, want)
	}
}

// A client that never opens its end of the output delays no call (moby#29369, containerd#4068;
// requirements.md#I1).
func TestAClientThatNeverReadsDelaysNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		task := c.newTask(t, c.container(t, []string{"sh", "-c", "echo nobody reads this; exit 7"}), newFifos(t, false).creator)
		exited := c.wait(t, task)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 7)
		deleteTask(t, c.context(t), task)
	})
}

// A containerd that does not read the shim's log does not stop the shim, however much the shim
// logs (containerd#9342; requirements.md#N3).
func TestALogThatNobodyReadsStopsNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		shim := c.dialShim(t, c.daemon.Bundle(task.ID()))
		defer shim.client.Close()
		pid := c.shim(t, task.ID())
		if err := syscall.Kill(c.daemon.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		resume := func() { _ = syscall.Kill(c.daemon.PID(), syscall.SIGCONT) }
		defer resume()
		for range 20 { // all stacks each time: more than the fifo and its reader can hold
			if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			if err := shim.answers(t, "State", &taskapi.StateRequest{ID: task.ID()}, &taskapi.StateResponse{}); err != nil {
				t.Fatal(err)
			}
		}
		// The shim works until its end.
		shim.call(t, "Kill", &taskapi.KillRequest{ID: task.ID(), Signal: uint32(syscall.SIGKILL)}, &emptypb.Empty{})
		shim.call(t, "Wait", &taskapi.WaitRequest{ID: task.ID()}, &taskapi.WaitResponse{})
		shim.call(t, "Delete", &taskapi.DeleteRequest{ID: task.ID()}, &taskapi.DeleteResponse{})
		shim.call(t, "Shutdown", &taskapi.ShutdownRequest{ID: task.ID()}, &emptypb.Empty{})
		wait.Observe(t, "the shim has ended", func() (bool, string) { return !alive(pid), fmt.Sprint(pid) })
		resume()
		c.awaitNoTasks(t)
	})
}

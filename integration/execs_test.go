package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

var beginsGoroutine = regexp.MustCompile(`msg="goroutine \d+ \[`)

// goroutines counts the goroutines of a shim, by the stacks that it logs on request. group is
// the name in its log lines.
func (c *column) goroutines(t *testing.T, shim int, group string) int {
	t.Helper()
	most := 0
	for range 3 { // the shim drops a line for which the log has no room
		before := len(c.dumps(t, group))
		if err := syscall.Kill(shim, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		wait.Observe(t, "the shim logs its stacks", func() (bool, string) {
			dumps := c.dumps(t, group)
			if len(dumps) > before {
				most = max(most, dumps[len(dumps)-1])
			}
			return len(dumps) > before, fmt.Sprint(len(dumps))
		})
	}
	return most
}

// dumps returns the number of goroutines of each complete dump in the log.
func (c *column) dumps(t *testing.T, group string) (counts []int) {
	t.Helper()
	n := 0
	for l := range strings.Lines(read(t, c.daemon.LogPath())) {
		switch {
		case !strings.Contains(l, "group="+group+" "):
		case strings.Contains(l, "BEGIN goroutine stack dump"):
			n = 0
		case strings.Contains(l, "END goroutine stack dump"):
			counts = append(counts, n)
		case beginsGoroutine.MatchString(l):
			n++
		}
	}
	return counts
}

// expectAsBefore waits until a shim has no more open files and goroutines than before. It does
// not wait long for the files, because after half a minute the garbage collector of an idle
// shim closes files that were leaked.
func (c *column) expectAsBefore(t *testing.T, shim int, group string, files []string, goroutines int) {
	t.Helper()
	now := c.descriptors(t, shim)
	for until := time.Now().Add(wait.Patience / 6); len(now) > len(files) && time.Now().Before(until); {
		now = c.descriptors(t, shim)
	}
	if len(now) > len(files) {
		t.Errorf("the shim has %d open files, before it had %d (requirements.md#I9):\n\t%q\n\tbefore %q", len(now), len(files), now, files)
	}
	wait.Observe(t, "the shim has as few goroutines as before", func() (bool, string) {
		now := c.goroutines(t, shim, group)
		return now <= goroutines, fmt.Sprintf("before %d, now %d", goroutines, now)
	})
}

// execKinds are ways in which an exec can be run.
var execKinds = []struct {
	name     string
	args     []string
	terminal bool
	kill     bool // after its start
	fails    bool // to start
	unused   bool // is never started
}{
	{name: "ends", args: []string{"echo", "hello"}},
	{name: "fails", args: []string{"sh", "-c", "exit 3"}},
	{name: "is killed", args: []string{"sleep", "1000"}, kill: true},
	{name: "has a terminal", args: []string{"echo", "hello"}, terminal: true},
	{name: "is killed at its terminal", args: []string{"sleep", "1000"}, terminal: true, kill: true},
	{name: "cannot start", args: []string{"no-such-program"}, fails: true},
	{name: "is never started", args: []string{"true"}, unused: true},
}

// execOf runs an exec of the kind that its number asks for.
func (c *column) execOf(ctx context.Context, task containerd.Task, number int) error {
	kind := execKinds[number%len(execKinds)]
	spec, err := task.Spec(ctx)
	if err != nil {
		return err
	}
	process := *spec.Process
	process.Args, process.Terminal = kind.args, kind.terminal
	var out streams
	creator := out.creator(c, nil)
	if kind.terminal {
		creator = cio.NewCreator(cio.WithStreams(nil, &out.stdout, nil), cio.WithTerminal, cio.WithFIFODir(fifoDir(c.daemon.Dir())))
	}
	exec, err := task.Exec(ctx, fmt.Sprintf("e%d", number), &process, creator)
	if err != nil {
		return err
	}
	if !kind.unused {
		exited, err := exec.Wait(ctx)
		if err != nil {
			return err
		}
		if err := exec.Start(ctx); (err != nil) != kind.fails {
			return fmt.Errorf("start of one that %s: %w", kind.name, err)
		}
		if kind.kill {
			if err := exec.Kill(ctx, syscall.SIGKILL); err != nil {
				return err
			}
		}
		select {
		case <-exited:
		case <-time.After(wait.Patience):
			return errors.New("no exit of one that " + kind.name)
		}
	}
	_, err = exec.Delete(ctx)
	return err
}

// After many execs of all kinds, no file stays open, no process runs on, and hardly any memory
// is kept (containerd#6834, containerd#9668, containerd#9217; requirements.md#I9).
func TestExecsOfEveryKindLeaveNothingInTheShim(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		shim := c.shim(t, task.ID())
		var numbers []int
		for i := range c.often(350, 42, 10_000) {
			numbers = append(numbers, i)
		}
		warmUp := 3 * len(execKinds)
		run := func(number int) error { return c.execOf(ctx, task, number) }
		files := c.descriptors(t, shim)
		atOnce(t, numbers[:warmUp], run)
		c.expectAsBefore(t, shim, task.ID(), files, math.MaxInt)
		goroutines := c.goroutines(t, shim, task.ID())
		before := anonymous(t, shim)
		atOnce(t, numbers[warmUp:], run)
		c.expectAsBefore(t, shim, task.ID(), files, goroutines)
		after := anonymous(t, shim)
		t.Logf("%d execs: %d files, %d goroutines, %d kB and then %d kB of memory", len(numbers), len(files), goroutines, before>>10, after>>10)
		if grown := after - before; grown > 4<<20 {
			t.Errorf("the shim's memory has grown by %d kB, from %d kB", grown>>10, before>>10)
		}
	})
}

// A probe whose child keeps its output open has ended when its first process has ended. Delete
// waits for that output for a while, and then closes everything that the exec had open
// (containerd#7802, containerd#10094, containerd#9568; requirements.md#X6).
func TestAnExecWhoseChildKeepsItsOutputCanBeDeleted(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		shim := c.shim(t, task.ID())
		if err := c.execOf(ctx, task, 0); err != nil {
			t.Fatal(err)
		}
		files, goroutines := c.descriptors(t, shim), c.goroutines(t, shim, task.ID())
		var out streams
		exec, err := task.Exec(ctx, "probe", process(t, ctx, task, "sh", "-c", "sleep 1000 & echo hi"), out.creator(c, nil))
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, 0)
		// containerd's client waits for the end of the output before it sends Delete, unless
		// the caller has cancelled the streams.
		exec.IO().Cancel()
		began := time.Now()
		deleteTask(t, ctx, exec)
		if took := time.Since(began); took > wait.Patience {
			t.Errorf("Delete took %s", took)
		}
		c.expectAsBefore(t, shim, task.ID(), files, goroutines)
		expectStatus(t, ctx, task, containerd.Running)
		if pids, err := task.Pids(ctx); err != nil || len(pids) != 2 {
			t.Errorf("processes %v, %v: the child runs on", pids, err)
		}
	})
}

// anonymous returns the memory that a process shares with no other, in bytes, after it has
// returned unneeded memory.
func anonymous(t *testing.T, pid int) int {
	t.Helper()
	var now []int
	for range 3 {
		now = append(now, rollup(t, pid, "Anonymous"))
		time.Sleep(100 * time.Millisecond)
	}
	return slices.Min(now)
}

// rollup is a line of a process's smaps_rollup, in bytes.
func rollup(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatalf("%s: %v", leaks.CommandLine(pid), err)
	}
	for l := range strings.Lines(string(text)) {
		if f := strings.Fields(l); f[0] == name+":" {
			var kB int
			if _, err := fmt.Sscan(f[1], &kB); err != nil {
				t.Fatal(err)
			}
			return kB << 10
		}
	}
	t.Fatalf("no %s in %q", name, text)
	return 0
}

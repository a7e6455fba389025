package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// mostSwitches is how often a thread of an idle process may give up the processor, in a minute.
// Go's runtime wakes one thread each minute, for its garbage collection.
const mostSwitches = 3

// An idle pod has no timer: Go's runtime wakes one thread of each process once a minute, and
// nothing else happens. The long form counts for ten minutes.
func TestAnIdlePodHasNoTimer(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		task := c.running(t, []string{"testprog", "sleep", "1000000"})
		c.execTrue(t, task, "probe")
		pids := c.serving(t, []int{c.shim(t, task.ID())})
		if len(pids) != 2 {
			t.Errorf("a pod has the processes %v, and not a server and a supervisor", pids)
		}
		for _, pid := range pids {
			c.awaitRest(t, pid)
		}
		if !*longFlag {
			return
		}
		const minutes = 10
		before := map[int]int{}
		for _, pid := range pids {
			before[pid] = switches(t, pid)
		}
		time.Sleep(minutes * time.Minute)
		for _, pid := range pids {
			n := switches(t, pid) - before[pid]
			t.Logf("%s: %d switches in %d minutes", leaks.CommandLine(pid), n, minutes)
			if n > mostSwitches*minutes {
				t.Errorf("%s: %d switches in %d minutes", leaks.CommandLine(pid), n, minutes)
			}
		}
	})
}

// execTrue runs the program true in a container.
func (c *column) execTrue(t *testing.T, task containerd.Task, id string) {
	t.Helper()
	ctx := c.context(t)
	e, err := task.Exec(ctx, id, process(t, ctx, task, "true"), cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	exited := c.wait(t, e)
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	expectExit(t, exited, 0)
	deleteTask(t, ctx, e)
}

// awaitRest waits until a process has no timer. A server and a supervisor have one after some
// work, for half a minute at most.
func (c *column) awaitRest(t *testing.T, pid int) {
	t.Helper()
	const longest = 30 * time.Second // proc/rest
	wait.ObserveWithin(t, longest+wait.Patience, leaks.CommandLine(pid)+" has no timer", func() (bool, string) {
		calls, err := blockedIn(pid)
		if err != nil {
			return false, err.Error()
		}
		limited := 0
		for _, call := range calls {
			if call.limited() {
				limited++
			}
			if call.number < 0 || call.limited() && call.number != unix.SYS_FUTEX {
				return false, fmt.Sprint(calls)
			}
		}
		return limited <= 1, fmt.Sprint(calls)
	})
}

// blocked is a system call in which a thread is blocked.
type blocked struct {
	number int // -1 for a thread that is not blocked
	args   []uint64
}

// limited reports whether the call ends by itself after some time.
func (b blocked) limited() bool {
	switch b.number {
	case unix.SYS_FUTEX:
		return b.args[3] != 0
	case unix.SYS_EPOLL_PWAIT:
		return int32(b.args[3]) != -1
	case unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP:
		return true
	}
	return false
}

// blockedIn returns the calls in which the threads of a process are blocked.
func blockedIn(pid int) ([]blocked, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no threads of %d: %w", pid, err)
	}
	var all []blocked
	for _, f := range files {
		text, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		call := blocked{number: -1}
		if words := strings.Fields(string(text)); len(words) > 6 {
			if call.number, err = strconv.Atoi(words[0]); err != nil {
				return nil, err
			}
			for _, w := range words[1:7] {
				n, err := strconv.ParseUint(w, 0, 64)
				if err != nil {
					return nil, err
				}
				call.args = append(call.args, n)
			}
		}
		all = append(all, call)
	}
	return all, nil
}

// switches returns how often the threads of a process have given up the processor.
func switches(t *testing.T, pid int) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	sum := 0
	for _, f := range files {
		for l := range strings.Lines(read(t, f)) {
			if n, ok := strings.CutPrefix(l, "voluntary_ctxt_switches:"); ok {
				count, err := strconv.Atoi(strings.TrimSpace(n))
				if err != nil {
					t.Fatal(err)
				}
				sum += count
			}
		}
	}
	return sum
}

// alone returns the memory of the processes that serve a container, without the container's own,
// as if nothing else on the machine shared their programs' pages. Those of ours come to rest before.
func (c *column) alone(t *testing.T, task containerd.Task, ours bool) (all, anonymous int) {
	t.Helper()
	for _, pid := range c.serving(t, []int{c.shim(t, task.ID())}) {
		if ours {
			c.awaitRest(t, pid)
		}
		all += rollup(t, pid, "Rss")
		anonymous += rollup(t, pid, "Pss_Anon")
	}
	return all, anonymous
}

// An exec probe every ten seconds, for an hour, leaves a pod less memory than runc's shim has
// after the same.
func TestAnHourOfProbesLeavesLessMemoryThanWithRunc(t *testing.T) {
	if !*longFlag {
		t.Skip("takes an hour: RKT_TEST_LONG=1")
	}
	const (
		probes  = 360
		every   = 10 * time.Second
		largest = 0.75 // of the memory with runc's shim
	)
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		ours := c.running(t, []string{"testprog", "sleep", "1000000"})
		runcs := c.runningBy(t, runcsShim, []string{"testprog", "sleep", "1000000"})
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := range probes {
			<-tick.C
			c.execTrue(t, ours, fmt.Sprintf("probe-%d", i))
			c.execTrue(t, runcs, fmt.Sprintf("probe-%d", i))
		}
		c.expectLess(t, fmt.Sprintf("after %d probes", probes), ours, runcs, largest)
	})
}

// expectLess compares the memory of the pod of ours with that of runc's.
func (c *column) expectLess(t *testing.T, when string, ours, runcs containerd.Task, largest float64) {
	t.Helper()
	all, anonymous := c.alone(t, ours, true)
	allRunc, anonymousRunc := c.alone(t, runcs, false)
	t.Logf("%s: %.2f MB, of which %.2f anonymous; with runc's shim %.2f and %.2f",
		when, perMB(all, 1), perMB(anonymous, 1), perMB(allRunc, 1), perMB(anonymousRunc, 1))
	if float64(all) > largest*float64(allRunc) {
		t.Errorf("%s: %.2f MB, with runc's shim %.2f MB", when, perMB(all, 1), perMB(allRunc, 1))
	}
}

// The containers of a pod have no more memory than with runc's shim. Each has two files open in
// the server, as with runc's shim: a connection of containerd's, and the directory by which its cgroup
// is locked.
func TestManyContainersOfAPodTakeNoMoreMemoryThanWithRunc(t *testing.T) {
	const filesOfPod = 30
	filesOfContainer := 2
	if unified() { // the notification of its OOM
		filesOfContainer = 3
	}
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		n := 10
		if *longFlag {
			n = 100
		}
		pod := func(runtime string) (tasks []containerd.Task, files int) {
			name := group("group-" + c.id())
			for range n {
				tasks = append(tasks, c.runningBy(t, runtime, []string{"testprog", "sleep", "1000000"}, name))
			}
			for _, pid := range c.serving(t, []int{c.shim(t, tasks[0].ID())}) {
				files += len(c.descriptors(t, pid))
			}
			return tasks, files
		}
		ours, files := pod(c.runtime)
		runcs, filesRunc := pod(runcsShim)
		t.Logf("%d containers in a pod: %d files open, with runc's shim %d", n, files, filesRunc)
		if most := filesOfPod + n*filesOfContainer; files > most {
			t.Errorf("%d containers have %d files open, more than %d", n, files, most)
		}
		c.expectLess(t, fmt.Sprintf("%d containers in a pod", n), ours[0], runcs[0], 1)

		left := boundTo(t, c.shim(t, runcs[0].ID())) // runc's shim leaves sockets of groups behind
		for _, task := range runcs {
			c.killAndDrop(t, task)
		}
		for _, path := range left {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
}

// boundTo returns the paths of the sockets that a process has open.
func boundTo(t *testing.T, pid int) (paths []string) {
	t.Helper()
	open, err := leaks.Descriptors(pid)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(read(t, "/proc/net/unix")) { // the last two of eight columns are inode and path
		if f := strings.Fields(l); len(f) == 8 && strings.HasPrefix(f[7], "/") && slices.Contains(open, "socket:["+f[6]+"]") && !slices.Contains(paths, f[7]) {
			paths = append(paths, f[7])
		}
	}
	return paths
}

package integration

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/rkt/containerd-shim-rkt-v1/integration/strace"
)

// An operation makes as many system calls, and reads as much, when there are many pods, containers or
// execs as when there are none: docs/performance.md. A new pod looks at six others, to find those that
// nobody serves, and lists their names.
func TestOperationsDoNotGrowWithTheNumberOfPods(t *testing.T) {
	const (
		pods, containers, execs = 30, 15, 50
		calls, bytes            = 100, 20_000 // more than before: garbage collections and signals count
		samples                 = 3
	)
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		runtime, trace := traced(t, "containerd-shim-rkt-v1")
		next := func() (calls, bytes int) {
			all, err := trace.Next()
			if err != nil {
				t.Fatal(err)
			}
			all = slices.DeleteFunc(all, ofContainer)
			return strace.Count(all, suite.dir).All, bytesRead(t, all)
		}
		// median returns the medians of what some operations make and read.
		median := func(what string, operation func()) (calls, bytes int) {
			var made, read []int
			for range samples {
				next()
				operation()
				m, r := next()
				made, read = append(made, m), append(read, r)
			}
			t.Logf("%s: %d calls, %d bytes read", what, made, read)
			slices.Sort(made)
			slices.Sort(read)
			return made[samples/2], read[samples/2]
		}
		compare := func(what string, operation, grow func()) {
			t.Helper()
			operation() // warms up
			made, read := median("first "+what, operation)
			grow()
			madeLast, readLast := median("last "+what, operation)
			if madeLast > made+calls || readLast > read+bytes {
				t.Errorf("%s: the first makes %d calls and reads %d bytes, the last %d and %d", what, made, read, madeLast, readLast)
			}
		}
		sleep := []string{"testprog", "sleep", "1000"}
		var tasks []containerd.Task
		defer func() {
			for _, task := range slices.Backward(tasks) {
				c.killAndDrop(t, task)
			}
		}()

		compare("pod",
			func() { tasks = append(tasks, c.runningBy(t, runtime, sleep)) },
			func() {
				for range pods {
					tasks = append(tasks, c.runningBy(t, c.runtime, sleep))
				}
			})

		group := group("group-" + c.id())
		more := func() { tasks = append(tasks, c.runningBy(t, runtime, sleep, group)) }
		more() // the pod's first container
		compare("container", more, func() {
			for range containers {
				more()
			}
		})

		task := tasks[len(tasks)-1]
		exec := func() { c.execTrue(t, task, c.id()) }
		compare("exec", exec, func() {
			for range execs {
				exec()
			}
		})
	})
}

// bytesRead returns how much was read from files and directories, without the lists of mappings by which
// a process finds out whether it has memory to give back (proc/rest).
func bytesRead(t *testing.T, calls []strace.Call) (sum int) {
	t.Helper()
	for _, call := range calls {
		if !slices.Contains([]string{"read", "pread64", "getdents64"}, call.Name) || call.Failed() || strings.Contains(call.Args, "/smaps>") {
			continue
		}
		n, err := strconv.Atoi(call.Result)
		if err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		sum += n
	}
	return sum
}

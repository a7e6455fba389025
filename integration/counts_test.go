package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/strace"
)

// most is how many calls of each kind an operation may make: those of the shim and of the
// supervisor, and executions of their programs. They are the counts of docs/performance.md. A
// count that has become smaller is lowered here, so that it stays so. The calls on cgroups may be
// sixty more when a container ends: its processes are listed if the kernel still counts one.
type most struct{ execs, made, renamed, removed, files, cgroup, all int }

var operations = []struct {
	name string
	most most
}{
	{"`ctr run --rm … true`", most{execs: 4, made: 28, renamed: 12, removed: 27, files: 860, cgroup: 170, all: 3000}},
	{"Create + Start of one more container", most{execs: 1, made: 9, renamed: 5, removed: 1, files: 87, cgroup: 74, all: 700}},
	{"Exec + Start + Delete", most{files: 10, cgroup: 33, all: 220}},
	{"Kill + Delete of one of many", most{execs: 1, renamed: 1, removed: 5, files: 78, cgroup: 83, all: 550}},
}

// hierarchies is for how many mounts of cgroups the counts hold.
const hierarchies = 10

// An operation makes no more files, and no more system calls on files and cgroups, than
// docs/performance.md says. Counts do not depend on the load of the machine, as times do.
func TestOperationsMakeNoMoreSystemCallsThanDocumented(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		runtime, trace := traced(t, "containerd-shim-rkt-v1")
		next := func() strace.Counts {
			calls, err := trace.Next()
			if err != nil {
				t.Fatal(err)
			}
			return strace.Count(slices.DeleteFunc(calls, ofContainer), suite.dir)
		}
		got := map[string]strace.Counts{}

		run := func() {
			c.ctr(t, "run", "--rm", "--runtime", runtime, "--fifo-dir", c.fifoDir(nil), image.BusyboxName, c.id(), "true").must(t)
			c.expectNothingLeft(t)
		}
		// The first use of a stage1 renders it, and so does the next one if the stage1 was installed
		// less than a second before.
		for renders := true; renders; {
			run()
			renders = slices.ContainsFunc(next().Made, func(c strace.Call) bool { return strings.Contains(c.String(), "/trees/") })
		}
		run()
		got[operations[0].name] = next()

		pod := group("group-" + c.id())
		start := func() containerd.Task {
			return c.runningBy(t, runtime, []string{"testprog", "sleep", "1000"}, pod, seccomp.WithDefaultProfile())
		}
		first := start()
		defer c.killAndDrop(t, first)
		next()
		task := start()
		got[operations[1].name] = next()
		c.execTrue(t, task, "exec")
		got[operations[2].name] = next()
		c.killAndDrop(t, task)
		got[operations[3].name] = next()

		// With version 1 the calls on cgroups grow with the number of hierarchies.
		own, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		few := strings.Count(string(own), "\n") <= hierarchies

		var table strings.Builder
		for _, op := range operations {
			n := got[op.name]
			fmt.Fprintf(&table, "\n| %s | %d | %d | %d | %d | %d | %d | %d |", op.name, len(n.Execs), len(n.Made), len(n.Renamed), len(n.Removed), len(n.Files), len(n.Cgroup), n.All)
			expectNoMore(t, op.name+": executions", n.Execs, op.most.execs)
			expectNoMore(t, op.name+": files and directories made", n.Made, op.most.made)
			expectNoMore(t, op.name+": files renamed", n.Renamed, op.most.renamed)
			expectNoMore(t, op.name+": files and directories removed", n.Removed, op.most.removed)
			expectNoMore(t, op.name+": calls on files", n.Files, op.most.files)
			if few {
				expectNoMore(t, op.name+": calls on cgroups", n.Cgroup, op.most.cgroup)
				if n.All > op.most.all { // a quarter more than documented: garbage collections and signals count
					t.Errorf("%s: %d calls, and not at most %d", op.name, n.All, op.most.all)
				}
			}
		}
		t.Logf("\n| | executions | made | renamed | removed | calls on files | calls on cgroups | all calls |\n|---|---:|---:|---:|---:|---:|---:|---:|%s", table.String())
	})
}

func expectNoMore(t *testing.T, what string, calls []strace.Call, most int) {
	t.Helper()
	if len(calls) <= most {
		return
	}
	var list strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&list, "\n\t%s", c)
	}
	t.Errorf("%s: %d, and not at most %d:%s", what, len(calls), most, list.String())
}

// ofContainer reports whether a call was made by a container's first process, or an exec's, which
// may be a child of the supervisor that has executed nothing yet, or by the supervisor's thread that
// makes a container's root. These make what the spec asks for. Executions count all the same, and so does the entrance into the cgroups.
func ofContainer(c strace.Call) bool {
	for _, ours := range []string{"containerd-shim-", "run ", "gc "} {
		if strings.HasPrefix(c.Program, ours) {
			return false
		}
	}
	return !strings.HasPrefix(c.Name, "exec") && !strings.Contains(c.String(), "/tasks")
}

// traced returns a runtime whose shim, the program of a name, runs under strace, with everything that it
// starts.
func traced(t *testing.T, shim string) (runtime string, trace *strace.Trace) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed: make deps")
	}
	dir, err := os.MkdirTemp("", "strace-") // not one of those whose files are counted
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// containerd reads the standard error of `start` to its end, and the tracer keeps it open.
	name := "traced" + strings.TrimPrefix(filepath.Base(dir), "strace-")
	executable(t, filepath.Join(suite.shims, "containerd-shim-rkt-"+name+"-v1"),
		fmt.Sprintf(`exec %s "$(dirname "$0")/%s" "$@" 2>>%s/errors`, strings.Join(strace.Command(dir), " "), shim, dir))
	return "io.containerd.rkt-" + name + ".v1", strace.Open(dir)
}

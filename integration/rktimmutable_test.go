package integration

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func TestAnImmutableImageOfRktsRunsAContainer(t *testing.T) {
	eachRkt(t, func(t *testing.T, n *rktNode) {
		n.run(t, []string{"--rm"}, n.id(), "echo", "an argument", "'quoted' \"$HOME\"").must(t).mustSay(t, "an argument 'quoted' \"$HOME\"\n")
		n.run(t, []string{"--rm"}, n.id(), "sh", "-c", "exit 42").mustExit(t, 42)
		n.expectNothingLeft(t)
	})
}

func TestRunGetsTheArgumentsOfItsVersionAndNoOthers(t *testing.T) { // traps 2; section 1, 4.1
	eachRkt(t, func(t *testing.T, n *rktNode) {
		n.run(t, []string{"--rm", "--env", "A=b"}, n.id(), "true").must(t)
		n.run(t, []string{"--rm", "--privileged"}, n.id(), "true").must(t)
		n.expectNothingLeft(t)
		lines := n.said(t, "run ")
		if len(lines) != 2 {
			t.Fatalf("run was called %d times:\n%s", len(lines), strings.Join(n.calls(t), "\n"))
		}
		uuid := "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
		want := []string{"^(--debug )?--net=host (--interactive )?" + uuid, "^(--debug )?--net=host (--interactive )?" + uuid}
		if n.fixture.version >= 3 {
			want[1] = "^(--debug )?--net=host (--interactive )?--disable-capabilities-restriction --disable-paths " + uuid
		}
		for i, l := range lines {
			if !regexp.MustCompile(want[i]).MatchString(l) {
				t.Errorf("run was called with %q, want %s", l, want[i])
			}
		}
		for _, l := range n.said(t, "gc ") {
			if !regexp.MustCompile("^(--debug )?" + uuid).MatchString(l) {
				t.Errorf("gc was called with %q", l)
			}
		}
		var names []string
		for _, l := range n.said(t, "run: ") {
			name, _, _ := strings.Cut(l, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		if got, want := slices.Compact(names), []string{"PATH", "RKT_LOCK_FD", "RKT_SELINUX_CONTEXT", "RKT_SELINUX_MOUNT_CONTEXT"}; !slices.Equal(got, want) {
			t.Errorf("environment of run: %v, want %v", got, want)
		}
	})
}

func TestStreamsOfAnImmutableImage(t *testing.T) {
	eachRkt(t, func(t *testing.T, n *rktNode) {
		r := n.run(t, []string{"--rm"}, n.id(), "testprog", "both", "to stdout", "to stderr").must(t)
		r.mustSay(t, "to stdout\n")
		if r.stderr != "to stderr\n" {
			t.Errorf("stderr %q", r.stderr)
		}
		const size = 1<<20 + 17
		n.ctrWith(t, io.LimitReader(zeros{}, size), n.runArgs([]string{"--rm"}, n.id(), "testprog", "count-stdin")...).must(t).mustSay(t, fmt.Sprintln(size))
		n.expectNothingLeft(t)
	})
}

func TestAnExitIsToldFromASignal(t *testing.T) { // trap 3
	eachRkt(t, func(t *testing.T, n *rktNode) {
		for _, sig := range []string{"SIGKILL", "SIGTERM"} {
			id := n.id()
			n.run(t, []string{"-d"}, id, "testprog", "sleep", "1000").must(t)
			n.ctr(t, "task", "kill", "--signal", sig, id).must(t)
			want := 128 + int(map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "SIGTERM": syscall.SIGTERM}[sig])
			r := n.ctr(t, "task", "delete", id)
			wait.Observe(t, "the task is deleted", func() (bool, string) {
				if r.code != 0 && strings.Contains(r.stderr, "must be stopped") {
					r = n.ctr(t, "task", "delete", id)
					return false, r.stderr
				}
				return true, ""
			})
			if r.code != want && !strings.Contains(r.stderr+r.stdout, fmt.Sprint(want)) {
				t.Errorf("%s: exit code %d, want %d: %s", sig, r.code, want, r.stderr)
			}
			n.ctr(t, "container", "delete", id).must(t)
		}
		for _, code := range []int{9, 15, 31, 127, 255} {
			if n.fixture.version > 2 && code > 128 {
				continue // the fixture's status file, like rkt's, holds one byte
			}
			n.run(t, []string{"--rm"}, n.id(), "testprog", "exit", fmt.Sprint(code)).mustExit(t, code)
		}
		n.expectNothingLeft(t)
	})
}

func TestAnExecInAnImmutableImage(t *testing.T) { // checklist 11
	eachRkt(t, func(t *testing.T, n *rktNode) {
		id := n.id()
		n.run(t, []string{"-d", "--env", "A=of the container"}, id, "testprog", "sleep", "1000").must(t)
		n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e1", id, "sh", "-c", `echo "$A"; exit 7`).mustExit(t, 7).mustSay(t, "of the container\n")
		for _, l := range n.said(t, "enter ") {
			if !regexp.MustCompile(`^--pid=[0-9]+ --appname=[a-z0-9-]+ -- sh -c`).MatchString(l) {
				t.Errorf("enter was called with %q", l)
			}
		}
		r := n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e2", "--cwd", "/tmp", id, "pwd")
		if r.code == 0 || !strings.Contains(r.stderr, "/process/cwd") {
			t.Errorf("an exec in another directory: exit code %d, %s", r.code, r.stderr)
		}
		if r := n.ctr(t, "task", "exec", "--fifo-dir", n.fifoDir(nil), "--exec-id", "e3", id, "nosuchprogram"); !strings.Contains(r.stderr, "executable file not found in $PATH") {
			t.Errorf("an exec of nothing: exit code %d, %s", r.code, r.stderr)
		}
		n.ends(id)
		n.expectNothingLeft(t)
	})
}

func TestATerminalOfAnImmutableImage(t *testing.T) {
	eachRkt(t, func(t *testing.T, n *rktNode) {
		n.hasTerminals(t)
		n.expectNothingLeft(t)
	})
}

func TestAnImmutablePodHasOneContainer(t *testing.T) { // section 14; checklist 6
	eachRkt(t, func(t *testing.T, n *rktNode) {
		n.refusesASecondContainer(t)
		n.expectNothingLeft(t)
	})
}

func TestNothingOfAnImmutablePodOutlivesItsShim(t *testing.T) { // trap 9; checklist 14
	eachRkt(t, func(t *testing.T, n *rktNode) {
		n.survivesItsShim(t)
		n.expectNothingLeft(t)
		if _, err := os.Stat("/dev/null"); err != nil {
			t.Error(err)
		}
	})
}

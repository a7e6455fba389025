package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// private makes a column for one test, which ends with the test.
func (c *column) private(t *testing.T, r release, opts daemon.Options) *column {
	t.Helper()
	d, err := startWith(c.context(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	own := &column{name: c.name, runtime: c.runtime, release: r, daemon: d}
	if own.client, err = d.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.discard(t) })
	return own
}

// Distributions upgrade containerd while containers run, even by two major versions at once
// (requirements.md#R8).
func TestContainersSurviveTheUpgradeOfContainerd(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		steps := slices.Clone(releases)
		slices.Reverse(steps)
		var programs []string
		for _, r := range steps {
			dir, err := r.find(c.context(t))
			if errors.Is(err, errAbsent) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			programs = append(programs, dir)
		}
		u := c.private(t, steps[0], steps[0].options("upgrade-"+c.name, programs[0], c.daemon.Namespace()+"-upgrade"))

		log := filepath.Join(t.TempDir(), "log")
		stays := "group-" + u.id()
		u.run(t, []string{"-d", "--log-uri", "file://" + log, "--annotation", groupAnnotation + "=" + stays}, stays,
			"sh", "-c", "while :; do echo tick; sleep 0.1; done").must(t)
		ends := u.newTask(t, u.container(t, exitsOnTerm(42)), cio.NullIO)
		if err := ends.Start(u.context(t)); err != nil {
			t.Fatal(err)
		}
		pid, _ := u.status(t, stays)
		shim := u.shim(t, stays)
		for i, dir := range programs[1:] {
			if err := u.daemon.Stop(); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				terminate(t, int(ends.Pid()))
			}
			ticks := strings.Count(read(t, log), "tick")
			wait.Observe(t, "the output goes on without containerd", func() (bool, string) {
				now := strings.Count(read(t, log), "tick")
				return now > ticks, fmt.Sprint(now)
			})
			u.daemon.Upgrade(dir)
			u.resume(t)
			if now, state := u.status(t, stays); now != pid || state != "RUNNING" {
				t.Errorf("under %s: pid %d, state %s; before it was %d", steps[i+1].name, now, state, pid)
			}
			u.exec(t, nil, stays, "echo", "still here").must(t).mustSay(t, "still here\n")
		}
		if s := deleteTask(t, u.context(t), u.reload(t, ends.ID())); s.ExitCode() != 42 {
			t.Errorf("exit code %d (requirements.md#R3)", s.ExitCode())
		}
		joins := u.running(t, []string{"testprog", "sleep", "1000"}, group(stays))
		if now := u.shimOf(t, u.daemon.Bundle(stays), joins.ID()); now != shim {
			t.Errorf("shim %d, the group's was %d", now, shim)
		}
		if pids, err := joins.Pids(u.context(t)); err != nil || len(pids) != 1 {
			t.Errorf("pids %v: %v", pids, err)
		}
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		u.awaitNoTasks(t) // the tasks of a dead shim are not listed, whether cleaned up or not
		wait.Observe(t, "the container has ended with its shim (requirements.md#D4)", func() (bool, string) {
			return !alive(pid), fmt.Sprint(pid)
		})
	})
}

// terminate ends a program of exitsOnTerm. It does not use containerd.
func terminate(t *testing.T, pid int) {
	t.Helper()
	wait.Observe(t, "the program ends", func() (bool, string) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		return !alive(pid), "alive"
	})
}

func (c *column) awaitNoTasks(t *testing.T) {
	t.Helper()
	wait.Observe(t, "the tasks are gone", func() (bool, string) {
		r := c.ctr(t, "task", "ls", "-q").must(t)
		return strings.TrimSpace(r.stdout) == "", r.stdout
	})
}

// A package replaces the shim and its stage1s while pods run. The servers of these pods are the
// old program; `start` and `delete` are the new one (requirements.md#B1, requirements.md#R8).
func TestPodsSurviveTheUpgradeOfTheShim(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		shims := filepath.Join(suite.dir, "upgraded")
		copyTree(t, *binFlag, shims)
		programs, err := c.release.find(c.context(t))
		if err != nil {
			t.Fatal(err)
		}
		opts := c.release.options("shims-"+c.name, programs, c.daemon.Namespace()+"-shims")
		opts.Shims = []string{shims}
		u := c.private(t, c.release, opts)
		name := "group-" + u.id()
		old := u.running(t, []string{"testprog", "fork", "1"}, group(name))
		over := u.running(t, []string{"testprog", "exit", "42"}, group(name))
		expectExit(t, u.wait(t, over), 42)
		shim := u.shim(t, old.ID())

		upgrade(t, shims)
		joins := u.running(t, []string{"testprog", "sleep", "1000"}, group(name))
		if now := u.shim(t, joins.ID()); now != shim {
			t.Errorf("shim %d, the group's is %d", now, shim)
		}
		for _, task := range []string{old.ID(), joins.ID()} {
			u.exec(t, nil, task, "echo", "still here").must(t).mustSay(t, "still here\n")
		}
		u.run(t, []string{"--rm"}, u.id(), "testprog", "exit", "7").mustExit(t, 7)

		events := u.listen(t, over.ID())
		if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		events.await(t, "delete 42") // recorded by the old program, read by the new
		u.awaitNoTasks(t)
		for _, pid := range []uint32{old.Pid(), joins.Pid()} {
			wait.Observe(t, "the containers have ended with their shim (requirements.md#D4)", func() (bool, string) {
				return !alive(int(pid)), fmt.Sprint(pid)
			})
		}
	})
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
}

// upgrade replaces the files of an installation as dpkg does.
func upgrade(t *testing.T, shims string) {
	t.Helper()
	for name, pkg := range map[string]string{binaries.ServerProgram: "./cmd/containerd-shim-rkt-server", "containerd-shim-rkt-v1": "./cmd/containerd-shim-rkt-v1"} {
		build := exec.Command("go", "build", "-C", "..", "-ldflags", "-s -w -X main.version=upgraded", "-o", filepath.Join(shims, "new"), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the new shim: %v: %s", err, out)
		}
		if err := os.Rename(filepath.Join(shims, "new"), filepath.Join(shims, name)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(filepath.Join(shims, "containerd-shim-rkt-v1"), "-v").Output()
	if err != nil || !strings.Contains(string(out), "upgraded") {
		t.Fatalf("the new shim says %q: %v", out, err)
	}
	stage1 := filepath.Join(shims, "stage1", "native")
	copyTree(t, stage1, stage1+".new")
	write(t, filepath.Join(stage1+".new", "rootfs", "NEWS"), "another digest\n")
	if err := os.RemoveAll(stage1); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(stage1+".new", stage1); err != nil {
		t.Fatal(err)
	}
}

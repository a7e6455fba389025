package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// stages are the kinds of hooks, in the order in which they run.
var stages = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

// hooks makes a spec with hooks at these stages. They write to dir, which has the same path in
// the container.
func hooks(dir string, at map[string][]specs.Hook) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		s.Hooks = &specs.Hooks{
			Prestart: at["prestart"], CreateRuntime: at["createRuntime"], CreateContainer: at["createContainer"],
			StartContainer: at["startContainer"], Poststart: at["poststart"], Poststop: at["poststop"],
		}
		s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: dir, Destination: dir, Options: []string{"rbind", "rw"}})
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations["test.colour"] = "blue"
		return nil
	}
}

// hook runs a shell script, on the host and in the container.
func hook(words string) specs.Hook {
	return specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", words}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
}

// runsHook reports whether hooks of a kind run when the OCI specification says so. runc 1.1
// runs poststart hooks before the process instead of after it, so with the stage1 oci stage 0
// refuses them.
func (c *column) runsHook(stage string) bool { return !c.usesRunc() || stage != "poststart" }

// reported is the state and the namespaces that a hook has written.
type reported struct {
	specs.State
	namespaces []string
}

func readReport(t *testing.T, path string) (r reported) {
	t.Helper()
	lines := strings.Split(read(t, path), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &r.State); err != nil {
		t.Fatalf("%s: %v: %s", path, err, lines[0])
	}
	r.namespaces = strings.Fields(strings.Join(lines[1:], " "))
	return r
}

// rootOf returns the root in the config.json of a bundle.
func rootOf(t *testing.T, bundle string) string {
	t.Helper()
	var spec specs.Spec
	if err := json.Unmarshal([]byte(read(t, filepath.Join(bundle, "config.json"))), &spec); err != nil {
		t.Fatal(err)
	}
	if filepath.IsAbs(spec.Root.Path) {
		return spec.Root.Path
	}
	return filepath.Join(bundle, spec.Root.Path)
}

// namespacesOf lists the namespaces of a process, like a hook of TestHooksReadTheState.
func namespacesOf(t *testing.T, pid string) (all []string) {
	t.Helper()
	for _, kind := range []string{"mnt", "net", "pid"} {
		link, err := os.Readlink(filepath.Join("/proc", pid, "ns", kind))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, link)
	}
	return all
}

// Hooks get the state on stdin, in the order of the spec, each hook in the namespaces of its
// kind. nerdctl's createRuntime hook reads from the state to which process it has to attach a
// network.
func TestHooksReadTheState(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx, dir := c.context(t), t.TempDir()
		at := map[string][]specs.Hook{}
		var want []string
		for _, stage := range stages {
			if !c.runsHook(stage) {
				continue
			}
			report := fmt.Sprintf("cd %s && { cat; echo; for n in mnt net pid; do readlink /proc/self/ns/$n; done; } >%s && echo %s >>order", dir, stage, stage)
			at[stage] = []specs.Hook{hook(report), hook("echo again >>" + dir + "/order")}
			want = append(want, stage, "again")
		}
		task := c.task(t, []string{"testprog", "sleep", "1000"}, hooks(dir, at))
		pid := fmt.Sprint(task.Pid())
		if root := rootOf(t, readReport(t, filepath.Join(dir, "createRuntime")).Bundle); root != filepath.Join(c.daemon.Bundle(task.ID()), "rootfs") {
			t.Errorf("the bundle of the state names the root %s", root)
		}
		inside, outside := namespacesOf(t, pid), namespacesOf(t, "self")
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, task)
		kill(t, ctx, task, syscall.SIGKILL)
		expectExit(t, exited, 137)
		deleteTask(t, ctx, task)

		if got := strings.Fields(read(t, filepath.Join(dir, "order"))); !slices.Equal(got, want) {
			t.Errorf("run were %q, want %q", got, want)
		}
		for _, stage := range stages {
			if !c.runsHook(stage) {
				continue
			}
			r := readReport(t, filepath.Join(dir, stage))
			status, where := specs.StateCreating, outside
			host := int(task.Pid())
			switch stage {
			case "createContainer":
				where, host = inside, 1 // in its own PID namespace
			case "startContainer":
				status, where, host = specs.StateCreated, inside, 1
			case "poststart":
				status = specs.StateRunning
			case "poststop":
				status, host = specs.StateStopped, 0
			}
			if r.ID != task.ID() || r.Version == "" || r.Status != status || r.Pid != host || !filepath.IsAbs(r.Bundle) || r.Annotations["test.colour"] != "blue" {
				t.Errorf("%s read %+v, want status %s and pid %d", stage, r.State, status, host)
			}
			if !slices.Equal(r.namespaces, where) {
				t.Errorf("%s ran in %q, want %q", stage, r.namespaces, where)
			}
		}
	})
}

// A hook has the environment and arguments that the spec gives it, and none of the shim's.
func TestHooksHaveTheEnvironmentOfTheSpec(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		dir := t.TempDir()
		at := map[string][]specs.Hook{}
		for _, stage := range []string{"createRuntime", "createContainer", "startContainer", "poststop"} {
			at[stage] = []specs.Hook{{
				Path: "/bin/sh",
				Args: []string{"sh", "-c", `{ echo "$#$1"; env; } >` + filepath.Join(dir, stage), "sh", "two words"},
				Env:  []string{"COLOUR=blue"},
			}}
		}
		task := c.running(t, []string{"true"}, hooks(dir, at))
		expectExit(t, c.wait(t, task), 0)
		deleteTask(t, c.context(t), task)
		shells := []string{"PWD", "OLDPWD", "SHLVL", "_", "PATH", "HOME"} // sh sets these itself
		for stage := range at {
			args, environment, _ := strings.Cut(read(t, filepath.Join(dir, stage)), "\n")
			got := slices.DeleteFunc(strings.Fields(environment), func(v string) bool {
				name, _, _ := strings.Cut(v, "=")
				return slices.Contains(shells, name)
			})
			if args != "1two words" || !slices.Equal(got, []string{"COLOUR=blue"}) {
				t.Errorf("%s: arguments %q, environment %q", stage, args, environment)
			}
		}
	})
}

// If a hook fails before the container runs, the call fails with the hook's output, and nothing
// is left of the container or of the hook.
func TestAHookThatFailsFailsTheCallAndLeavesNothing(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, stage := range []string{"prestart", "createRuntime", "createContainer"} {
			dir := t.TempDir()
			container := c.container(t, []string{"true"}, hooks(dir, map[string][]specs.Hook{
				stage:      {hook("echo it says no >&2; exit 3"), hook("echo next >" + dir + "/next")},
				"poststop": {hook("echo after >>" + dir + "/after")},
			}))
			_, err := container.NewTask(c.context(t), cio.NullIO)
			if err == nil || !c.usesRunc() && !strings.Contains(err.Error(), stage) || !strings.Contains(err.Error(), "it says no") {
				t.Errorf("%s: %v", stage, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "next")); err == nil {
				t.Errorf("%s: the next hook was run", stage)
			}
			if c.name != "runc" && read(t, filepath.Join(dir, "after")) != "after\n" {
				t.Errorf("%s: the poststop hook was run as often as %q says", stage, read(t, filepath.Join(dir, "after")))
			}
			c.expectNothingLeft(t)
		}
	})
}

func TestAHookThatTakesTooLongIsKilled(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, stage := range []string{"createRuntime", "createContainer"} {
			dir, second := t.TempDir(), 1
			slow := hook("exec sleep 1000.125 <" + dir)
			slow.Timeout = &second
			container := c.container(t, []string{"true"}, hooks(dir, map[string][]specs.Hook{stage: {slow}}))
			if _, err := container.NewTask(c.context(t), cio.NullIO); err == nil || !saysOneSecond(err.Error()) {
				t.Errorf("%s: %v", stage, err)
			}
			c.expectNothingLeft(t)
		}
	})
}

func saysOneSecond(text string) bool {
	return slices.ContainsFunc([]string{"1s", "1.0s", "1 second"}, func(s string) bool { return strings.Contains(text, s) })
}

// With runc, Start has succeeded when the hook runs, and the container ends with 1.
func TestAStartContainerHookThatFailsFailsStart(t *testing.T) {
	eachOf(t, []string{"native", "runc"}, func(t *testing.T, c *column) {
		ctx, dir := c.context(t), t.TempDir()
		if c.name == "runc" {
			container := c.container(t, []string{"sleep", "1000"}, hooks(dir, map[string][]specs.Hook{"poststart": {hook("echo it says no >&2; exit 3")}}))
			if _, err := container.NewTask(ctx, cio.NullIO); err == nil || !strings.Contains(err.Error(), "it says no") {
				t.Errorf("create: %v", err)
			}
			return
		}
		task := c.task(t, []string{"sh", "-c", "echo ran >" + dir + "/ran"}, hooks(dir, map[string][]specs.Hook{
			"startContainer": {hook("echo it says no >&2; exit 3")},
			"poststop":       {hook("echo after >>" + dir + "/after")},
		}))
		if err := task.Start(ctx); err == nil || !strings.Contains(err.Error(), "startContainer") || !strings.Contains(err.Error(), "it says no") {
			t.Errorf("start: %v", err)
		}
		expectStatus(t, ctx, task, containerd.Stopped)
		deleteTask(t, ctx, task)
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			t.Error("the program was executed")
		}
		if got := read(t, filepath.Join(dir, "after")); got != "after\n" {
			t.Errorf("the poststop hook was run as often as %q says", got)
		}
	})
}

// Runtime-spec 1.3 demands that. runc 1.1 runs the hook at Create, which then fails.
func TestAPoststartHookThatFailsFailsStartAndEndsTheContainer(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		ctx, dir := c.context(t), t.TempDir()
		task := c.task(t, []string{"sh", "-c", "echo ran >" + dir + "/ran; exec sleep 1000"}, hooks(dir, map[string][]specs.Hook{
			// The program may write before or after the hooks.
			"poststart": {hook("until [ -e " + dir + "/ran ]; do sleep 0.1; done; echo it says no >&2; exit 3"), hook("echo next >" + dir + "/next")},
			"poststop":  {hook("echo after >>" + dir + "/after")},
		}))
		if err := task.Start(ctx); err == nil || !strings.Contains(err.Error(), "poststart") || !strings.Contains(err.Error(), "it says no") {
			t.Errorf("start: %v", err)
		}
		if err := syscall.Kill(int(task.Pid()), 0); err != syscall.ESRCH {
			t.Errorf("the process of the container is there: %v", err)
		}
		expectStatus(t, ctx, task, containerd.Stopped)
		deleteTask(t, ctx, task)
		if _, err := os.Stat(filepath.Join(dir, "next")); err == nil {
			t.Error("the hook after the one that failed was run")
		}
		if got := read(t, filepath.Join(dir, "after")); got != "after\n" {
			t.Errorf("the poststop hook was run as often as %q says", got)
		}
	})
}

// The failure of a hook that can no longer prevent anything is logged, and the next poststop
// hook runs. runc does not run the next one.
func TestPoststopHooksThatFailChangeNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx, dir := c.context(t), t.TempDir()
		at := map[string][]specs.Hook{"poststop": {{Path: "/no/such/hook"}, hook("echo poststop >>" + dir + "/order")}}
		task := c.running(t, []string{"testprog", "exit", "42"}, hooks(dir, at))
		expectExit(t, c.wait(t, task), 42)
		deleteTask(t, ctx, task)
		if got := read(t, filepath.Join(dir, "order")); got != "poststop\n" {
			t.Errorf("run were %q", got)
		}
	})
}

// nerdctl's postStop hook frees addresses and port mappings. It runs once, and its failure
// changes no result: the exit code stays the same, also if `delete` reports it to containerd.
func TestPoststopHooksRunOnceWhateverEndsTheContainer(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		for _, shim := range []string{"lives", "is killed"} {
			dir := t.TempDir()
			at := map[string][]specs.Hook{"poststop": {
				hook("cat >>" + dir + "/state; echo >>" + dir + "/state; exit 3"), hook("echo next >>" + dir + "/next"),
			}}
			container := c.container(t, exitsOnTerm(42), hooks(dir, at))
			events := c.listen(t, container.ID())
			task := c.newTask(t, container, cio.NullIO)
			exited := c.wait(t, task)
			if err := task.Start(c.context(t)); err != nil {
				t.Fatal(err)
			}
			if shim == "lives" {
				terminate(t, int(task.Pid()))
				expectExit(t, exited, 42)
				if _, err := os.Stat(filepath.Join(dir, "state")); err == nil {
					t.Error("poststop hooks were run before the container was deleted")
				}
				deleteTask(t, c.context(t), task)
			} else {
				pid := c.shim(t, task.ID())
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // so that it misses the exit
					t.Fatal(err)
				}
				terminate(t, int(task.Pid()))
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			code := 42
			if shim == "is killed" && c.name == "oci" {
				code = 137 // only the shim records exits of this stage1
			}
			events.await(t, fmt.Sprintf("delete %d", code))
			if err := container.Delete(c.context(t), containerd.WithSnapshotCleanup); err != nil {
				t.Error(err)
			}
			c.expectNothingLeft(t)
			if states := strings.Fields(read(t, filepath.Join(dir, "state"))); len(states) != 1 || !strings.Contains(states[0], `"status":"stopped"`) {
				t.Errorf("the shim %s: the hook read %q", shim, states)
			}
			if got := read(t, filepath.Join(dir, "next")); got != "next\n" {
				t.Errorf("the shim %s: the next hook was run as often as %q says", shim, got)
			}
		}
	})
}

// A poststop hook that tears down a network may wait for a server. Delete does not, and the hook ends its work, whether the
// shim has begun it or, after the shim's death, `delete`.
func TestASlowPoststopHookDelaysNoDeleteAndFinishes(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		for _, shim := range []string{"lives", "is killed"} {
			dir := t.TempDir()
			fifo, done := filepath.Join(dir, "fifo"), filepath.Join(dir, "done")
			must(t, syscall.Mkfifo(fifo, 0o600))
			at := map[string][]specs.Hook{"poststop": {hook("read x <" + fifo + "; echo $x >>" + done)}}
			container := c.container(t, exitsOnTerm(42), hooks(dir, at))
			events := c.listen(t, container.ID())
			task := c.newTask(t, container, cio.NullIO)
			exited := c.wait(t, task)
			must(t, task.Start(c.context(t)))
			code := 42
			if shim == "lives" {
				terminate(t, int(task.Pid()))
				expectExit(t, exited, uint32(code))
				deleteTask(t, c.context(t), task)
			} else {
				code = 137
				must(t, syscall.Kill(c.shim(t, task.ID()), syscall.SIGKILL))
			}
			events.await(t, fmt.Sprintf("delete %d", code))
			must(t, container.Delete(c.context(t), containerd.WithSnapshotCleanup))
			if _, err := os.Stat(done); err == nil {
				t.Error("the hook has not waited")
			}
			must(t, os.WriteFile(fifo, []byte("finished\n"), 0))
			wait.Observe(t, "the hook has done its work", func() (bool, string) {
				b, _ := os.ReadFile(done)
				return string(b) == "finished\n", string(b)
			})
			c.expectNothingLeft(t)
		}
	})
}

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// gate is a place where a script waits, so that a test knows how far a call has come.
type gate struct{ dir string }

// newGate makes a gate in a directory of the suite. A script that stays there is found among
// the remains.
func newGate(t *testing.T) gate {
	t.Helper()
	dir, err := os.MkdirTemp(suite.dir, "gate-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return gate{dir}
}

// wait returns the shell commands that wait at the gate.
func (g gate) wait() string {
	return fmt.Sprintf("echo > %[1]s/reached; until [ -e %[1]s/open ]; do sleep 0.05; done; ", g.dir)
}

func (g gate) awaitReached(t *testing.T) { t.Helper(); awaitFile(t, filepath.Join(g.dir, "reached")) }

// awaitPassed waits until the script has passed the gate.
func (g gate) awaitPassed(t *testing.T) { t.Helper(); awaitFile(t, filepath.Join(g.dir, "passed")) }

func (g gate) open(t *testing.T) { t.Helper(); write(t, filepath.Join(g.dir, "open"), "") }

func executable(t *testing.T, path, script string) {
	t.Helper()
	write(t, path, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// createStep is a step of Create.
type createStep struct {
	name string
	// arrange makes something wait at that step, and returns the runtime and the other options
	// of the request.
	arrange func(t *testing.T, c *column, g gate) (runtime string, opts []oci.SpecOpts, task []containerd.NewTaskOpts)
	// goesOn means that the waiting process does not depend on containerd, and goes on without
	// it.
	goesOn bool
	// late means that the step cannot be interrupted, and goes on when containerd is back.
	late bool
}

var createSteps = []createStep{
	{name: "before the shim is started", goesOn: true, arrange: waitingStart("before", "", `"$real" "$@"`)},
	{name: "before the address is told", goesOn: true, arrange: waitingStart("after", `answer=$("$real" "$@")`, `printf %s "$answer"`)},
	{name: "while the stage1 starts", arrange: waitingStage1("run")},
	{name: "while the root is mounted", late: true, arrange: waitingMount},
	{name: "in app/add", arrange: waitingStage1("app_add")},
	{name: "in a hook", arrange: func(_ *testing.T, c *column, g gate) (string, []oci.SpecOpts, []containerd.NewTaskOpts) {
		return c.runtime, []oci.SpecOpts{withHook(g.wait())}, nil
	}},
}

type arrangement = func(*testing.T, *column, gate) (string, []oci.SpecOpts, []containerd.NewTaskOpts)

// waitingStart returns a shim whose `start` waits between two lines of a script. The pipe to
// containerd breaks in the second line; the shell that runs it goes on.
func waitingStart(name, before, after string) arrangement {
	return func(t *testing.T, _ *column, g gate) (string, []oci.SpecOpts, []containerd.NewTaskOpts) {
		executable(t, filepath.Join(suite.shims, "containerd-shim-rkt-"+name+"-v1"), strings.Join([]string{
			`real=$(dirname "$0")/containerd-shim-rkt-v1`,
			`for word; do :; done`,
			`[ "$word" = start ] || exec "$real" "$@"`,
			`trap : PIPE`,
			before,
			g.wait(),
			after,
			`echo > ` + g.dir + `/passed`,
		}, "\n"))
		return "io.containerd.rkt-" + name + ".v1", nil, nil
	}
}

// waitingStage1 returns a stage1 one of whose entrypoints waits.
func waitingStage1(entrypoint string) arrangement {
	return func(t *testing.T, _ *column, g gate) (string, []oci.SpecOpts, []containerd.NewTaskOpts) {
		slow := faulty{name: "slow" + strings.ReplaceAll(entrypoint, "_", ""), programs: map[string]string{entrypoint: g.wait()}}
		return slow.install(t), nil, nil
	}
}

// waitingMount returns a mount whose helper waits. mount finds the helper because the directory
// of the shims is the first in PATH.
func waitingMount(t *testing.T, c *column, g gate) (string, []oci.SpecOpts, []containerd.NewTaskOpts) {
	executable(t, filepath.Join(suite.shims, "mount.fuse3"), g.wait()+`exec mount -t tmpfs waited "$2"`)
	return c.runtime, nil, []containerd.NewTaskOpts{containerd.WithRootFS([]mount.Mount{
		{Type: "fuse3.waits", Source: "waits", Target: "/run", Options: []string{"ro"}},
	})}
}

// containerd may be killed at any step of a Create. The container then does not exist for the
// next containerd, and nothing of it is left (containerd#6860, containerd#5015;
// requirements.md#R4).
func TestContainerdMayBeKilledAtEveryStepOfACreate(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		for _, step := range createSteps {
			g := newGate(t)
			runtime, spec, opts := step.arrange(t, c, g)
			container := c.containerOf(t, c.client, c.image(t, c.client), runtime, c.id(), []string{"true"}, spec...)
			created := make(chan error, 1)
			go func() { created <- newTaskError(c.context(t), container, opts) }()
			g.awaitReached(t)
			c.restart(t, func() {
				if step.goesOn {
					g.open(t)
					g.awaitPassed(t)
				}
			})
			if err := <-created; err == nil {
				t.Errorf("killed %s: the task was created", step.name)
			}
			if step.late {
				g.open(t)
			}
			if task, err := container.Task(c.context(t), nil); err == nil {
				s, err := task.Status(c.context(t))
				t.Errorf("killed %s: the next containerd has the task: %v %v", step.name, s, err)
			}
			wait.Observe(t, "nothing is left of a Create that ended "+step.name, func() (bool, string) {
				left, err := c.remains()
				return err == nil && len(left) == 0, strings.Join(left, "\n\t")
			})
			if t.Failed() {
				return
			}
		}
	})
}

func newTaskError(ctx context.Context, container containerd.Container, opts []containerd.NewTaskOpts) error {
	_, err := container.NewTask(ctx, cio.NullIO, opts...)
	return err
}

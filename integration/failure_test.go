package integration

import (
	"strconv"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

type badProgram struct {
	name, program, words string
	runc                 string // the text of runc 1.1, if it differs; oci passes it on
}

// badPrograms cannot be executed. From these texts clients derive the exit code: 127 or 126.
var badPrograms = []badProgram{
	{name: "missing in PATH", program: "no-such-program", words: "executable file not found in $PATH"},
	{name: "missing", program: "/no/such/program", words: "no such file or directory"},
	{name: "not executable", program: "/etc/not-executable", words: "permission denied"},
	{name: "a directory", program: "/etc", words: "is a directory", runc: "permission denied"},
}

func (b badProgram) text(c *column) string {
	if c.usesRunc() && c.wraps != currentRunc && b.runc != "" {
		return b.runc
	}
	return b.words
}

func TestAProgramThatCannotBeExecutedFailsCreateAndLeavesNothing(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, bad := range badPrograms {
			id := c.id()
			r := c.run(t, nil, id, bad.program)
			if r.code == 0 || !strings.Contains(r.stderr, bad.text(c)) {
				t.Errorf("%s: code %d, stderr %q, want %q in it (requirements.md#T1)", bad.name, r.code, r.stderr, bad.text(c))
			}
			if _, state := c.status(t, id); state != "" {
				t.Errorf("%s: the task is %s", bad.name, state)
			}
			c.expectNothingLeft(t)
		}
	})
}

// A client may try again. The shim serves other containers of the pod as well, and must not mind.
func TestAnExecWhoseStartFailedIsNotStartedAgain(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"sleep", "1000"})
		e, err := task.Exec(ctx, "e", process(t, ctx, task, "no-such-program"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(ctx); err == nil || !strings.Contains(err.Error(), "executable file not found in $PATH") {
			t.Errorf("start: %v", err)
		}
		if err := e.Start(ctx); err == nil {
			t.Error("it was started again")
		}
		if s, err := task.Status(ctx); err != nil || s.Status != containerd.Running {
			t.Errorf("the container is %v, %v", s, err)
		}
		deleteTask(t, ctx, e)
		c.execTrue(t, task, "e")
		c.killAndDrop(t, task)
	})
}

// The client's mounts are the root. runc's shim would run the container in another directory.
func TestARootBesideTheMountsForItIsRefused(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		for _, path := range []string{t.TempDir(), "/", "rootfs/below"} {
			container := c.containerOf(t, c.client, c.image(t, c.client), c.runtime, c.id(), []string{"true"}, oci.WithRootFSPath(path))
			if task, err := container.NewTask(ctx, cio.NullIO); err == nil || !strings.Contains(err.Error(), "root.path is "+strconv.Quote(path)) {
				t.Errorf("%s: %v, %v", path, task, err)
			}
		}
		c.expectNothingLeft(t)
	})
}

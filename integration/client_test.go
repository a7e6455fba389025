package integration

import (
	"bytes"
	"context"
	"io"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// container makes a container that is to run args, without a task.
func (c *column) container(t *testing.T, args []string, opts ...oci.SpecOpts) containerd.Container {
	t.Helper()
	return c.containerOf(t, c.client, c.image(t, c.client), c.runtime, c.id(), args, opts...)
}

func (c *column) containerOf(t *testing.T, client *containerd.Client, img containerd.Image, runtime, id string, args []string, opts ...oci.SpecOpts) containerd.Container {
	t.Helper()
	container, err := c.makeContainer(c.context(t), client, img, runtime, id, args, opts...)
	if err != nil {
		t.Fatalf("new container %s: %v", id, err)
	}
	return container
}

// makeContainer is containerOf for goroutines, which may not end the test.
func (*column) makeContainer(ctx context.Context, client *containerd.Client, img containerd.Image, runtime, id string, args []string, opts ...oci.SpecOpts) (containerd.Container, error) {
	all := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithDefaultUnixDevices, oci.WithProcessArgs(args...)}, opts...)
	// An option may give the runtime options of its own: bySystemd.
	return client.NewContainer(ctx, id,
		containerd.WithRuntime(runtime, nil), containerd.WithNewSnapshot(id, img), containerd.WithNewSpec(all...))
}

// task makes a container and its task: created, not started.
func (c *column) task(t *testing.T, args []string, opts ...oci.SpecOpts) containerd.Task {
	t.Helper()
	return c.newTask(t, c.container(t, args, opts...), cio.NullIO)
}

func (c *column) newTask(t *testing.T, container containerd.Container, io cio.Creator) containerd.Task {
	t.Helper()
	task, err := container.NewTask(c.context(t), io)
	if err != nil {
		t.Fatalf("new task %s: %v", container.ID(), err)
	}
	return task
}

// running makes a container and starts its task.
func (c *column) running(t *testing.T, args []string, opts ...oci.SpecOpts) containerd.Task {
	t.Helper()
	return c.runningBy(t, c.runtime, args, opts...)
}

// runningBy is running for another runtime.
func (c *column) runningBy(t *testing.T, runtime string, args []string, opts ...oci.SpecOpts) containerd.Task {
	t.Helper()
	task := c.newTask(t, c.containerOf(t, c.client, c.image(t, c.client), runtime, c.id(), args, opts...), cio.NullIO)
	if err := task.Start(c.context(t)); err != nil {
		t.Fatalf("start %s: %v", task.ID(), err)
	}
	if runtime == runcsShim {
		c.byRunc = append(c.byRunc, task.ID())
	}
	return task
}

// streams collects the output of a process.
type streams struct{ stdout, stderr bytes.Buffer }

func (s *streams) creator(c *column, stdin io.Reader) cio.Creator {
	return cio.NewCreator(cio.WithStreams(stdin, &s.stdout, &s.stderr), cio.WithFIFODir(fifoDir(c.daemon.Dir())))
}

// awaitOutput waits until the client has read a process's streams to their end. The client's
// Delete closes the streams before it waits, and loses output that has not arrived.
func awaitOutput(t *testing.T, p containerd.Process) {
	t.Helper()
	read := make(chan struct{})
	go func() {
		p.IO().Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(wait.Patience):
		t.Errorf("the streams of %s do not end", p.ID())
	}
}

// wait returns the channel of a process's exit. It is called before the process is started.
func (c *column) wait(t *testing.T, p containerd.Process) <-chan containerd.ExitStatus {
	t.Helper()
	exited, err := p.Wait(c.context(t))
	if err != nil {
		t.Fatalf("wait for %s: %v", p.ID(), err)
	}
	return exited
}

// expectExit waits for a process's end and compares its code.
func expectExit(t *testing.T, exited <-chan containerd.ExitStatus, code uint32) containerd.ExitStatus {
	t.Helper()
	s := wait.For(t, "the exit", exited)
	if s.Error() != nil {
		t.Fatalf("wait: %v", s.Error())
	}
	if s.ExitCode() != code {
		t.Errorf("exit code %d, want %d", s.ExitCode(), code)
	}
	return s
}

func expectStatus(t *testing.T, ctx context.Context, p containerd.Process, want containerd.ProcessStatus) {
	t.Helper()
	s, err := p.Status(ctx)
	if err != nil {
		t.Errorf("status of %s: %v", p.ID(), err)
	} else if s.Status != want {
		t.Errorf("%s is %s, want %s", p.ID(), s.Status, want)
	}
}

func kill(t *testing.T, ctx context.Context, p containerd.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Kill(ctx, s); err != nil {
		t.Errorf("kill %s with %d: %v", p.ID(), s, err)
	}
}

func deleteTask(t *testing.T, ctx context.Context, p containerd.Process, opts ...containerd.ProcessDeleteOpts) *containerd.ExitStatus {
	t.Helper()
	s, err := p.Delete(ctx, opts...)
	if err != nil {
		t.Fatalf("delete %s: %v", p.ID(), err)
	}
	return s
}

// process is the spec of an exec that runs args in a task.
func process(t *testing.T, ctx context.Context, task containerd.Task, args ...string) *specs.Process {
	t.Helper()
	spec, err := task.Spec(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := *spec.Process
	p.Args, p.Terminal = args, false
	return &p
}

// image finds the image that most cases run.
func (c *column) image(t *testing.T, client *containerd.Client) containerd.Image {
	t.Helper()
	img, err := client.GetImage(c.context(t), image.BusyboxName)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

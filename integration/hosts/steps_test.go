package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// limit bounds a step.
var limit = 20 * time.Second * wait.Slowness

// course does the steps in a column of a node.
type course struct {
	*node
	column
	t      *testing.T
	ctx    context.Context
	serial int
	// main runs while execs and joins are tried. If it could not be made, mainErr says why.
	main    containerd.Task
	mainOut *output
	mainErr error
}

// step is something that a client does with a container. do returns nil if the result is right.
type step struct {
	name string
	do   func(*course) error
	// not is a column that does not have the feature.
	not string
}

// inUserNamespace is the name of the step of a container with a user namespace of its own.
const inUserNamespace = "run with a user namespace"

func steps() []step {
	return []step{
		{name: "run, exit code 42", do: func(c *course) error { return c.run([]string{"sh", "-c", "echo out; exit 42"}, 42, "out\n") }},
		{name: "run a missing program", do: func(c *course) error { return missingProgram(c.run([]string{"no-such-program"}, 0, "")) }},
		{name: "run at a terminal", do: func(c *course) error { return c.run([]string{"tty"}, 0, "/dev/pts/0\r\n", oci.WithTTY) }},
		{name: inUserNamespace, do: func(c *course) error { return c.run([]string{"id", "-u"}, 0, "0\n", userNamespace()) }, not: "nspawn"},
		{name: "run -d", do: (*course).begin},
		{name: "exec", do: func(c *course) error { return c.exec([]string{"echo", "out"}, 0, "out\n") }},
		{name: "exec, exit code 7", do: func(c *course) error { return c.exec([]string{"sh", "-c", "exit 7"}, 7, "") }},
		{name: "exec at a terminal", do: func(c *course) error {
			return c.exec([]string{"tty"}, 0, "/dev/pts/0\r\n", func(p *specs.Process) { p.Terminal = true })
		}},
		{name: "exec a missing program", do: func(c *course) error { return missingProgram(c.exec([]string{"no-such-program"}, 0, "")) }},
		{name: "exec as user 1000", do: func(c *course) error {
			return c.exec([]string{"id", "-u"}, 0, "1000\n", func(p *specs.Process) { p.User.UID = 1000 })
		}},
		{name: "metrics", do: withMain(func(c *course) error { _, err := c.main.Metrics(c.ctx); return err })},
		{name: "join the namespaces", do: withMain((*course).join)},
		{name: "pause and resume", do: withMain((*course).pause)},
		{name: "TERM", do: withMain((*course).terminate)},
		{name: "delete", do: withMain(func(c *course) error { return c.delete(c.main) })},
		{name: "KILL, delete", do: (*course).kill},
		{name: "nothing left", do: (*course).nothingLeft},
	}
}

// try does the steps, and returns the errors by the steps' names.
func (c column) try(t *testing.T, n *node) map[string]string {
	course := &course{node: n, column: c, t: t, mainErr: errors.New("there is no container")}
	failed := map[string]string{}
	for _, s := range steps() {
		if s.not == c.name || s.name == n.not {
			continue
		}
		var cancel context.CancelFunc
		course.ctx, cancel = n.context(t)
		if err := s.do(course); err != nil {
			failed[s.name] = err.Error()
		}
		cancel()
	}
	n.killAll(t)
	return failed
}

func withMain(do func(*course) error) func(*course) error {
	return func(c *course) error {
		if c.mainErr != nil {
			return c.mainErr
		}
		return do(c)
	}
}

// missingProgram returns nil if an error names the missing program.
func missingProgram(err error) error {
	switch {
	case err == nil:
		return errors.New("a missing program was started")
	case strings.Contains(err.Error(), "no-such-program"):
		return nil
	}
	return err
}

// output is what a process has written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (c *course) id() string {
	c.serial++
	return fmt.Sprintf("%s%d", c.name, c.serial)
}

func (c *course) streams(out *output, terminal bool) cio.Creator {
	opts := []cio.Opt{cio.WithStreams(nil, out, out), cio.WithFIFODir(filepath.Join(c.Dir(), "fifo"))}
	if terminal {
		opts = append(opts, cio.WithTerminal)
	}
	return cio.NewCreator(opts...)
}

func (c *course) create(args []string, opts ...oci.SpecOpts) (containerd.Task, *output, error) {
	id := c.id()
	img, err := c.client.GetImage(c.ctx, imageName)
	if err != nil {
		return nil, nil, err
	}
	opts = append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithProcessArgs(args...)}, opts...)
	if c.spec != nil {
		opts = append(opts, c.spec)
	}
	container, err := c.client.NewContainer(c.ctx, id, containerd.WithNewSnapshot(id, img), containerd.WithNewSpec(opts...), containerd.WithRuntime(c.runtime, nil))
	if err != nil {
		return nil, nil, err
	}
	spec, err := container.Spec(c.ctx)
	if err != nil {
		return nil, nil, err
	}
	out := &output{}
	task, err := container.NewTask(c.ctx, c.streams(out, spec.Process.Terminal))
	if err != nil {
		return nil, nil, errors.Join(err, c.forget(container))
	}
	return task, out, nil
}

// forget deletes a container without a task.
func (c *course) forget(container containerd.Container) error {
	ctx, cancel := c.node.context(c.t)
	defer cancel()
	return container.Delete(ctx, containerd.WithSnapshotCleanup)
}

// delete deletes a task, whose process it kills, and its container.
func (c *course) delete(task containerd.Task) error {
	ctx, cancel := c.node.context(c.t)
	defer cancel()
	if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
		return err
	}
	container, err := c.client.LoadContainer(ctx, task.ID())
	if err != nil {
		return err
	}
	return c.forget(container)
}

// run runs a container to its end.
func (c *course) run(args []string, code uint32, want string, opts ...oci.SpecOpts) (err error) {
	task, out, err := c.create(args, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.delete(task)) }()
	return c.follow(task, out, code, want)
}

// follow starts a process and waits for its end.
func (c *course) follow(p containerd.Process, out *output, code uint32, want string) error {
	exited, err := p.Wait(c.ctx)
	if err != nil {
		return err
	}
	if err := p.Start(c.ctx); err != nil {
		return err
	}
	if err := c.ended(p, exited, code); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if out.String() != want {
		return fmt.Errorf("the output is %q", out)
	}
	return nil
}

// ended waits for the end of a process and of its streams.
func (c *course) ended(p containerd.Process, exited <-chan containerd.ExitStatus, code uint32) error {
	select {
	case s := <-exited:
		if s.Error() != nil {
			return s.Error()
		}
		if s.ExitCode() != code {
			return fmt.Errorf("the exit code is %d", s.ExitCode())
		}
	case <-c.ctx.Done():
		return fmt.Errorf("it does not end within %s", limit)
	}
	read := make(chan struct{})
	go func() { p.IO().Wait(); close(read) }()
	select {
	case <-read:
		return nil
	case <-c.ctx.Done():
		return errors.New("its streams do not end")
	}
}

func (c *course) exec(args []string, code uint32, want string, edits ...func(*specs.Process)) (err error) {
	if c.mainErr != nil {
		return c.mainErr
	}
	spec, err := c.main.Spec(c.ctx)
	if err != nil {
		return err
	}
	p := spec.Process
	p.Args = args
	for _, edit := range edits {
		edit(p)
	}
	out := &output{}
	process, err := c.main.Exec(c.ctx, c.id(), p, c.streams(out, p.Terminal))
	if err != nil {
		return err
	}
	defer func() {
		if _, derr := process.Delete(c.ctx, containerd.WithProcessKill); err == nil {
			err = derr
		}
	}()
	return c.follow(process, out, code, want)
}

// begin runs the container in which others execute programs. It ends by SIGTERM.
func (c *course) begin() error {
	c.main, c.mainOut, c.mainErr = c.create([]string{"sh", "-c", `trap "exit 9" TERM; echo ready; while :; do sleep 1000 & wait; done`})
	if c.mainErr == nil {
		c.mainErr = c.main.Start(c.ctx)
	}
	if c.mainErr == nil {
		c.mainErr = c.awaitReady()
	}
	return c.mainErr
}

func (c *course) awaitReady() error {
	for c.mainOut.String() != "ready\n" {
		select {
		case <-c.ctx.Done():
			return fmt.Errorf("the output of run -d is %q", c.mainOut)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (c *course) join() error {
	join := func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		for i, n := range s.Linux.Namespaces {
			file := map[specs.LinuxNamespaceType]string{
				specs.PIDNamespace: "pid", specs.NetworkNamespace: "net", specs.IPCNamespace: "ipc", specs.UTSNamespace: "uts",
			}[n.Type]
			if file != "" {
				s.Linux.Namespaces[i].Path = fmt.Sprintf("/proc/%d/ns/%s", c.main.Pid(), file)
			}
		}
		return nil
	}
	return c.run([]string{"sh", "-c", `[ $$ -ne 1 ] && grep -q ready /proc/1/cmdline && echo joined`}, 0, "joined\n", join)
}

func (c *course) pause() error {
	for _, change := range []struct {
		do   func(context.Context) error
		want containerd.ProcessStatus
	}{{c.main.Pause, containerd.Paused}, {c.main.Resume, containerd.Running}} {
		if err := change.do(c.ctx); err != nil {
			return err
		}
		s, err := c.main.Status(c.ctx)
		if err != nil {
			return err
		}
		if s.Status != change.want {
			return fmt.Errorf("the state is %q, not %q", s.Status, change.want)
		}
	}
	return nil
}

func (c *course) terminate() error { return c.signal(c.main, syscall.SIGTERM, 9) }

func (c *course) signal(task containerd.Task, sig syscall.Signal, code uint32) error {
	exited, err := task.Wait(c.ctx)
	if err != nil {
		return err
	}
	if err := task.Kill(c.ctx, sig); err != nil {
		return err
	}
	return c.ended(task, exited, code)
}

func (c *course) kill() error {
	task, _, err := c.create([]string{"sleep", "1000"})
	if err != nil {
		return err
	}
	err = task.Start(c.ctx)
	if err == nil {
		err = c.signal(task, syscall.SIGKILL, 137)
	}
	return errors.Join(err, c.delete(task))
}

func (c *course) nothingLeft() error {
	for {
		left, err := c.remains()
		if err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-c.ctx.Done():
			return errors.Join(err, fmt.Errorf("left: %s", strings.Join(left, "; ")))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// userNamespace gives a container a user namespace of its own.
func userNamespace() oci.SpecOpts {
	ids := []specs.LinuxIDMapping{{HostID: 100_000, Size: 65_536}}
	return oci.WithUserNamespace(ids, ids)
}

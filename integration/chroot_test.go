package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// chrooted makes a column whose daemon was started by chroot(8), as in an installer or a rescue
// system: its root is a tree of bind mounts, in a mount namespace whose root is the machine's.
func (c *column) chrooted(t *testing.T) *column {
	t.Helper()
	name := "chroot-" + c.name
	programs, err := c.release.find(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, root := filepath.Join(suite.dir, name+"-programs"), filepath.Join(suite.dir, name+"-root")
	for _, d := range []string{dir, root} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(programs, "ctr"), filepath.Join(dir, "ctr")); err != nil {
		t.Fatal(err)
	}
	// The mounts go with the daemon and its containers.
	script := fmt.Sprintf(`#!/bin/sh
exec unshare --mount sh -ec '
	mount -t tmpfs tmpfs %[1]s
	for d in /*; do
		if [ -L "$d" ]; then
			cp -P "$d" %[1]s
		elif [ -d "$d" ]; then
			mkdir "%[1]s$d"
			mount --rbind "$d" "%[1]s$d"
		fi
	done
	exec chroot %[1]s %[2]s/containerd "$@"
' sh "$@"
`, root, programs)
	if err := os.WriteFile(filepath.Join(dir, "containerd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return c.private(t, c.release, c.release.options(name, dir, c.daemon.Namespace()+"-chroot"))
}

// A mount namespace is entered at its own root, which is not the root of a process that was started
// by chroot(8). An exec, and any other process that enters the namespace of a container, must still be
// in the container's root.
func TestExecsOfADaemonInAChrootAreInTheContainersRoot(t *testing.T) {
	eachOf(t, []string{"native", "nspawn"}, func(t *testing.T, c *column) {
		c = c.chrooted(t)
		image := c.run(t, []string{"--rm"}, c.id(), "ls", "/").must(t).stdout
		for what, opts := range map[string][]oci.SpecOpts{
			"nothing else":     nil,
			"hooks":            {hooks(t.TempDir(), map[string][]specs.Hook{"createContainer": {hook("true")}})},
			"a shared root":    {sharedRoot},
			"all capabilities": {oci.WithAllKnownCapabilities},
		} {
			t.Run(what, func(t *testing.T) { c.expectExecsIn(t, image, opts) })
		}
		if c.name != "native" {
			return
		}
		container := c.container(t, []string{"true"}, oci.WithUserNamespace([]specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}, []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}))
		if _, err := container.NewTask(c.context(t), cio.NullIO); err == nil || !strings.Contains(err.Error(), "the kernel makes no user namespace there") {
			t.Errorf("a user namespace: %v", err)
		}
	})
}

// expectExecsIn runs a container, and tests that processes that enter it see these entries in "/".
func (c *column) expectExecsIn(t *testing.T, entries string, opts []oci.SpecOpts) {
	t.Helper()
	task := c.running(t, []string{"testprog", "sleep", "1000"}, opts...)
	id := task.ID()
	c.exec(t, nil, id, "ls", "/").must(t).mustSay(t, entries)
	c.exec(t, []string{"--user", "1000:1000"}, id, "ls", "/").must(t).mustSay(t, entries)
	// Init makes a process with an I/O priority, and a plan of system calls the others.
	for _, priority := range []*specs.LinuxIOPriority{nil, {Class: "IOPRIO_CLASS_BE", Priority: 4}} {
		if said := c.listAtATerminal(t, task, priority); said != entries {
			t.Errorf("at a terminal, with the priority %v: %q, want %q", priority, said, entries)
		}
	}
	out, err := exec.Command("nsenter", "--mount", "--target", fmt.Sprint(task.Pid()), "ls", "/").CombinedOutput()
	if err != nil || string(out) != entries {
		t.Errorf("the root of the mount namespace has %q (%v), want %q", out, err, entries)
	}
	c.killAndDrop(t, task)
}

// A stage1 whose execs would be elsewhere makes no container, and the error gives the reason.
func TestADaemonInAChrootMakesNoContainersWhoseExecsWouldBeInTheMachinesRoot(t *testing.T) {
	eachOf(t, []string{"oci"}, func(t *testing.T, c *column) {
		c = c.chrooted(t)
		if r := c.run(t, []string{"--rm"}, c.id(), "true"); r.code == 0 || !strings.Contains(r.stderr, "containerd was started by chroot(8)") {
			t.Errorf("code %d: %s", r.code, r.stderr)
		}
	})
}

// listAtATerminal returns the entries of "/" that an exec at a terminal sees.
func (c *column) listAtATerminal(t *testing.T, task containerd.Task, priority *specs.LinuxIOPriority) string {
	t.Helper()
	ctx := c.context(t)
	p := process(t, ctx, task, "ls", "-1", "/")
	p.Terminal, p.IOPriority = true, priority
	var out streams
	e, err := task.Exec(ctx, "terminal", p, cio.NewCreator(cio.WithStreams(nil, &out.stdout, nil), cio.WithTerminal, cio.WithFIFODir(fifoDir(c.daemon.Dir()))))
	if err != nil {
		t.Fatal(err)
	}
	exited := c.wait(t, e)
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	expectExit(t, exited, 0)
	awaitOutput(t, e)
	deleteTask(t, ctx, e)
	return strings.ReplaceAll(out.stdout.String(), "\r", "")
}

func sharedRoot(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
	s.Linux.RootfsPropagation = "rshared"
	return nil
}

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// box is a sandbox of containerd's shim controller, as CRI makes them.
type box struct {
	*column
	id         string
	controller sandbox.Controller
	pid        int // of the process that holds its namespaces
}

// createBox makes a sandbox that is not started.
func (c *column) createBox(t *testing.T, config *cri.PodSandboxConfig) *box {
	t.Helper()
	ctx := c.context(t)
	b := &box{column: c, id: c.id(), controller: c.client.SandboxController("shim")}
	record := sandbox.Sandbox{ID: b.id, Sandboxer: "shim", Runtime: sandbox.RuntimeOpts{Name: c.runtime}}
	if _, err := c.client.SandboxStore().Create(ctx, record); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.remove(t) })
	var opts []sandbox.CreateOpt
	if config != nil {
		opts = append(opts, sandbox.WithOptions(config))
	}
	if err := b.controller.Create(ctx, record, opts...); err != nil {
		t.Fatalf("create sandbox: %v", err)
	}
	return b
}

// startBox makes a sandbox and starts it.
func (c *column) startBox(t *testing.T, config *cri.PodSandboxConfig) *box {
	t.Helper()
	b := c.createBox(t, config)
	instance, err := b.controller.Start(c.context(t), b.id)
	if err != nil {
		t.Fatalf("start sandbox: %v", err)
	}
	b.pid = int(instance.Pid)
	return b
}

// remove removes the sandbox, unless the test has.
func (b *box) remove(t *testing.T) {
	t.Helper()
	ctx := b.context(t)
	if err := b.controller.Shutdown(ctx, b.id); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Errorf("shut down sandbox %s: %v", b.id, err)
	}
	if err := b.client.SandboxStore().Delete(ctx, b.id); err != nil && !strings.Contains(err.Error(), "not found") {
		t.Errorf("forget sandbox %s: %v", b.id, err)
	}
}

// joins makes a container share namespaces of the sandbox, as CRI's do.
func (b *box) joins(types ...specs.LinuxNamespaceType) oci.SpecOpts {
	files := map[specs.LinuxNamespaceType]string{specs.NetworkNamespace: "net"}
	var opts []oci.SpecOpts
	for _, ns := range types {
		file := files[ns]
		if file == "" {
			file = string(ns)
		}
		opts = append(opts, oci.WithLinuxNamespace(specs.LinuxNamespace{Type: ns, Path: fmt.Sprintf("/proc/%d/ns/%s", b.pid, file)}))
	}
	return oci.Compose(opts...)
}

// member makes a container in the sandbox, and its task.
func (b *box) member(t *testing.T, args []string, opts ...oci.SpecOpts) containerd.Task {
	t.Helper()
	id := b.column.id()
	img := b.image(t, b.client)
	all := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithDefaultUnixDevices, oci.WithProcessArgs(args...),
		b.joins(specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace)}, opts...)
	container, err := b.client.NewContainer(b.context(t), id, containerd.WithNewSnapshot(id, img),
		containerd.WithNewSpec(all...), containerd.WithRuntime(b.runtime, nil), containerd.WithSandbox(b.id))
	if err != nil {
		t.Fatal(err)
	}
	return b.newTask(t, container, cio.NullIO)
}

// runMember is member, started.
func (b *box) runMember(t *testing.T, args []string, opts ...oci.SpecOpts) containerd.Task {
	t.Helper()
	task := b.member(t, args, opts...)
	if err := task.Start(b.context(t)); err != nil {
		t.Fatal(err)
	}
	return task
}

func (b *box) bundle() string {
	return filepath.Join(b.daemon.Dir(), "state/io.containerd.sandbox.controller.v1.shim", b.daemon.Namespace(), b.id)
}

// namespace identifies a namespace of a process.
func namespace(t *testing.T, pid int, kind string) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func TestASandboxRunsContainersWithoutAPauseContainer(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		b := c.startBox(t, nil)
		first := b.runMember(t, []string{"testprog", "sleep", "1000"})
		second := b.runMember(t, []string{"testprog", "sleep", "1000"})
		for _, task := range []containerd.Task{first, second} {
			for _, kind := range []string{"net", "ipc", "uts"} {
				if ours, theirs := namespace(t, int(task.Pid()), kind), namespace(t, b.pid, kind); ours != theirs {
					t.Errorf("%s namespace of a container: %s, of its sandbox: %s", kind, ours, theirs)
				}
				if namespace(t, b.pid, kind) == namespace(t, os.Getpid(), kind) {
					t.Errorf("the sandbox has the host's %s namespace", kind)
				}
			}
		}
		shim := c.shimOf(t, b.bundle(), b.id)
		if other := c.shim(t, first.ID()); other != shim { // G2
			t.Errorf("shims %d and %d in one pod", shim, other)
		}
		exited := c.wait(t, first)
		kill(t, ctx, first, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, first)
		exited = c.wait(t, second)
		kill(t, ctx, second, syscall.SIGKILL)
		expectExit(t, exited, 137)
		c.drop(t, second)
		// Without a container it goes on.
		st, err := b.controller.Status(ctx, b.id, true)
		if err != nil || st.State != "SANDBOX_READY" || int(st.Pid) != b.pid {
			t.Errorf("status %+v, %v", st, err)
		}
		third := b.runMember(t, []string{"testprog", "exit", "5"})
		expectExit(t, c.wait(t, third), 5)
		c.drop(t, third)
		if err := b.controller.Stop(ctx, b.id); err != nil {
			t.Fatal(err)
		}
		if err := b.controller.Shutdown(ctx, b.id); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the sandbox's shim has ended", func() (bool, string) {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", shim))
			return err != nil, ""
		})
	})
}

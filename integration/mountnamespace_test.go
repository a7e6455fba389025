package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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

// inMountNamespace has a container join the mount namespace of a path.
func inMountNamespace(path string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		i := slices.IndexFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.MountNamespace })
		s.Linux.Namespaces[i].Path = path
		return nil
	}
}

// The container's root is mounted by the shim when the namespace has been a copy of the host's
// for some time, and is not seen there.
func TestAContainerJoinsAMountNamespaceByItsPath(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		owner := exec.Command("unshare", "--mount", "sleep", "1000")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { owner.Process.Kill(); owner.Wait() })
		path := fmt.Sprintf("/proc/%d/ns/mnt", owner.Process.Pid)
		mountNamespace := func(pid any) string {
			ns, err := os.Readlink(fmt.Sprintf("/proc/%v/ns/mnt", pid))
			if err != nil {
				t.Fatal(err)
			}
			return ns
		}
		wait.Until(t, "unshare has its mount namespace", func() bool { return mountNamespace(owner.Process.Pid) != mountNamespace("self") })
		task := c.running(t, []string{"testprog", "sleep", "1000"}, inMountNamespace(path))
		if mountNamespace(task.Pid()) != mountNamespace(owner.Process.Pid) {
			t.Error("the container has a mount namespace of its own")
		}
		if root, err := os.Stat(fmt.Sprintf("/proc/%d/root/bin/testprog", task.Pid())); err != nil || root.IsDir() {
			t.Errorf("the container's root is another one: %v", err)
		}
		expectStatus(t, c.context(t), task, containerd.Running)

		refused := c.container(t, []string{"true"}, inMountNamespace(fmt.Sprintf("/proc/%d/ns/mnt", c.daemon.PID())))
		if _, err := refused.NewTask(c.context(t), cio.NullIO); err == nil || !strings.Contains(err.Error(), "it is the host's mount namespace") {
			t.Errorf("the mount namespace of containerd: %v", err)
		}
	})
}

// withoutMounts takes a container's mount namespace away, and all that needs one.
func withoutMounts(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
	s.Mounts, s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil, nil
	s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.MountNamespace })
	return nil
}

func TestAContainerWithoutAMountNamespaceLeavesNoMount(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		for _, killed := range []bool{false, true} {
			task := c.running(t, []string{"sh", "-c", "test -x /bin/testprog && exec sleep 1000"}, withoutMounts)
			ctx := c.context(t)
			exec, err := task.Exec(ctx, "e", process(t, ctx, task, "sh", "-c", "test -x /bin/testprog -a ! -e "+c.daemon.Dir()), cio.NullIO)
			if err != nil {
				t.Fatal(err)
			}
			exited := c.wait(t, exec)
			if err := exec.Start(ctx); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 0)
			if killed {
				if err := syscall.Kill(c.shim(t, task.ID()), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				wait.Observe(t, "containerd has deleted the task", func() (bool, string) {
					r := c.ctr(t, "task", "ls", "-q").must(t)
					return !strings.Contains(r.stdout, task.ID()), r.stdout
				})
			} else {
				ended := c.wait(t, task)
				kill(t, ctx, task, syscall.SIGKILL)
				expectExit(t, ended, 137)
				deleteTask(t, ctx, task)
			}
			wait.Observe(t, fmt.Sprintf("no mount is left (shim killed: %t)", killed), func() (bool, string) {
				mounts := read(t, "/proc/self/mountinfo")
				return !strings.Contains(mounts, "/"+task.ID()+"/"), mounts
			})
		}
		refused := c.container(t, []string{"true"}, withoutMounts, oci.WithMounts([]specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}}))
		if _, err := refused.NewTask(c.context(t), cio.NullIO); err == nil || !strings.Contains(err.Error(), "mounts: not supported without a mount namespace") {
			t.Errorf("a mount without a mount namespace: %v", err)
		}
	})
}

package integration

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// cgroupsOf returns the cgroups of a process, by controller; "" is that of version 2.
func cgroupsOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	of := map[string]string{}
	for line := range strings.Lines(read(t, filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for name := range strings.SplitSeq(fields[1], ",") {
			of[name] = fields[2]
		}
	}
	return of
}

// relativeTo returns the cgroups in which relative paths begin: containerd's own on version 1,
// and the parent of its own on version 2.
func (c *column) relativeTo(t *testing.T) map[string]string {
	t.Helper()
	of := cgroupsOf(t, c.daemon.PID())
	if unified() {
		return map[string]string{"": filepath.Dir(of[""])}
	}
	delete(of, "") // version 2, on a host whose controllers are on version 1
	return of
}

// bases returns the different ones of these cgroups.
func bases(of map[string]string) []string {
	return slices.Compact(slices.Sorted(maps.Values(of)))
}

// limitedParent makes a cgroup with limits in which containers of relative paths are.
func (c *column) limitedParent(t *testing.T, name string) {
	t.Helper()
	for _, f := range []cgroupFile{memoryLimit, pidsLimit} {
		base := c.relativeTo(t)[f.controller]
		if unified() {
			base = c.relativeTo(t)[""]
			write(t, filepath.Join("/sys/fs/cgroup", base, "cgroup.subtree_control"), "+"+f.controller)
		}
		file := f.of(filepath.Join(base, name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, map[cgroupFile]string{memoryLimit: podMemory, pidsLimit: podTasks}[f])
	}
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join("/sys/fs/cgroup/unified", name)) // runc's, on a host with both versions
		for controller, base := range c.relativeTo(t) {
			dir := filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(controller, "name="), base, name)
			if err := os.Remove(dir); err != nil && exists(dir) {
				t.Error(err)
			}
		}
	})
}

// As `ctr run --cgroup NAME/x` and Docker's `--cgroup-parent NAME` ask for it.
// requirements.md#C1
func TestTheLimitsAboveARelativeCgroupsPathHold(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := fmt.Sprintf("rktit%d%s%s", os.Getpid(), c.name, c.id())
		c.limitedParent(t, name)
		container := c.container(t, allocating, oci.WithCgroup("../"+name+"/x"))
		if c.wraps == "crun" && !unified() && len(bases(c.relativeTo(t))) > 1 {
			_, err := container.NewTask(ctx, cio.NullIO)
			if err == nil || !strings.Contains(err.Error(), "use an absolute path") {
				t.Errorf("crun takes a relative path for an absolute one: %v", err)
			}
			removeUpwards(t, "/"+name) // crun has made it there, and leaves it
			return
		}
		task := c.newTask(t, container, cio.NullIO)
		exited := c.wait(t, task)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		is := cgroupsOf(t, int(task.Pid()))
		for controller, base := range c.relativeTo(t) {
			if want := filepath.Join(base, name, "x"); is[controller] != want {
				t.Errorf("of the controller %q it is in %s, want %s", controller, is[controller], want)
			}
		}
		feed(t, task.Pid()) // it asks for as much memory as the cgroup above may have
		expectExit(t, exited, 137)
		if _, err := task.Delete(ctx); err != nil {
			t.Error(err)
		}
		wait.Observe(t, "the container's cgroup is gone", func() (bool, string) {
			for controller, base := range c.relativeTo(t) {
				if dir := filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(controller, "name="), base, name, "x"); exists(dir) {
					return false, dir
				}
			}
			return true, ""
		})
	})
}

// requirements.md#C1
func TestCtrsFlagNamesACgroupBelowContainerds(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx, id := c.context(t), c.id()
		name := fmt.Sprintf("rktit%d%s%s", os.Getpid(), c.name, id)
		c.limitedParent(t, name)
		c.run(t, []string{"--detach", "--cgroup", name + "/" + id}, id, "testprog", "sleep", "1000").must(t)
		container, err := c.client.LoadContainer(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		task, err := container.Task(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		is := cgroupsOf(t, int(task.Pid()))
		for controller, base := range c.relativeTo(t) {
			if want := filepath.Join(base, name, id); is[controller] != want {
				t.Errorf("of the controller %q it is in %s, want %s", controller, is[controller], want)
			}
		}
		c.ctr(t, "task", "rm", "--force", id).must(t)
		c.ctr(t, "container", "rm", id).must(t)
	})
}

// requirements.md#C1
func TestACgroupOfAnotherContainerIsRefusedWithItsID(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		name := fmt.Sprintf("rktit%d%s%s", os.Getpid(), c.name, c.id())
		c.limitedParent(t, name)
		first := c.running(t, []string{"testprog", "sleep", "1000"}, oci.WithCgroup(name+"/x"))
		own := cgroupsOf(t, int(first.Pid()))
		for _, path := range []string{name + "/x", "../" + name + "/y/../x", name + "/x/y", name} {
			_, err := c.container(t, []string{"true"}, oci.WithCgroup(path)).NewTask(c.context(t), cio.NullIO)
			if err == nil || !strings.Contains(err.Error(), "in use by container "+first.ID()+":") {
				t.Errorf("%s: %v", path, err)
			}
		}
		expectStatus(t, c.context(t), first, containerd.Running)
		if is := cgroupsOf(t, int(first.Pid())); fmt.Sprint(is) != fmt.Sprint(own) {
			t.Errorf("the first container was in %v, and is in %v", own, is)
		}
		if _, err := first.Delete(c.context(t), containerd.WithProcessKill); err != nil {
			t.Error(err)
		}
		again := c.running(t, []string{"testprog", "sleep", "1000"}, oci.WithCgroup(name+"/x"))
		if is := cgroupsOf(t, int(again.Pid())); fmt.Sprint(is) != fmt.Sprint(own) {
			t.Errorf("after the first one it is in %v, want %v", is, own)
		}
		if _, err := again.Delete(c.context(t), containerd.WithProcessKill); err != nil {
			t.Error(err)
		}
	})
}

// A spec may name any cgroup of the machine. No process of the machine is killed or moved
// for that.
func TestACgroupOfAProcessOfTheMachineIsRefused(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		of := cgroupsOf(t, c.daemon.PID())
		for _, path := range []string{"/", "..", "../../..", filepath.Join("/", cmp.Or(of["memory"], of[""])), "/x\ny", "cgroup.procs"} {
			_, err := c.container(t, []string{"true"}, oci.WithCgroup(path)).NewTask(c.context(t), cio.NullIO)
			if err == nil {
				t.Fatalf("%q: accepted", path)
			}
			t.Log(err)
		}
		if is := cgroupsOf(t, c.daemon.PID()); fmt.Sprint(is) != fmt.Sprint(of) {
			t.Errorf("containerd was in %v, and is in %v", of, is)
		}
	})
}

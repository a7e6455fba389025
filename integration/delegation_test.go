package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// Limits that the containers of a podCgroup share.
const (
	podMemory = "67108864"
	podTasks  = "200"
)

// podCgroup is a cgroup with limits that a program above containerd makes around containers, as
// a kubelet does for each pod.
type podCgroup struct {
	path string                 // on the host
	spec func(id string) string // the cgroup in the spec of a container below it
	dir  func(id string) string // the path of that container's cgroup
}

// limit reads one of the cgroup's own limits.
func (p podCgroup) limit(t *testing.T, f cgroupFile) string {
	t.Helper()
	return strings.TrimSpace(read(t, f.of(p.path)))
}

// of returns the path of the file of a cgroup.
func (f cgroupFile) of(path string) string {
	if unified() {
		return filepath.Join("/sys/fs/cgroup", path, f.v2)
	}
	return filepath.Join("/sys/fs/cgroup", f.controller, path, f.v1)
}

// unified reports whether the host has cgroup version 2 only.
func unified() bool { return exists("/sys/fs/cgroup/cgroup.controllers") }

// withoutSystemd makes a podCgroup as a kubelet with the driver cgroupfs does.
func withoutSystemd(t *testing.T, name string) podCgroup {
	t.Helper()
	path := "/"
	for _, part := range []string{"rktit" + name, "burstable", "pod1"} {
		for _, f := range []cgroupFile{memoryLimit, pidsLimit} {
			if unified() {
				write(t, filepath.Join("/sys/fs/cgroup", path, "cgroup.subtree_control"), "+"+f.controller)
			}
			if err := os.MkdirAll(filepath.Dir(f.of(path+"/"+part)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		path = filepath.Join(path, part)
	}
	write(t, memoryLimit.of(path), podMemory)
	write(t, pidsLimit.of(path), podTasks)
	t.Cleanup(func() { removeUpwards(t, path) })
	in := func(id string) string { return path + "/" + id }
	return podCgroup{path: path, spec: in, dir: in}
}

// removeUpwards removes a cgroup, which must be empty, from every hierarchy, and then its
// parents.
func removeUpwards(t *testing.T, path string) {
	t.Helper()
	roots := []string{"/sys/fs/cgroup"}
	if !unified() {
		roots, _ = filepath.Glob("/sys/fs/cgroup/*") // the pattern is good
	}
	for ; path != "/"; path = filepath.Dir(path) {
		for _, root := range roots {
			if err := os.Remove(filepath.Join(root, path)); err != nil && exists(filepath.Join(root, path)) {
				t.Error(err)
			}
		}
	}
}

// withSystemd makes a podCgroup as a kubelet with the driver systemd does.
func withSystemd(t *testing.T, name string) podCgroup {
	t.Helper()
	if !exists("/run/systemd/system") {
		t.Skip("systemd does not run")
	}
	top := "rktit" + name
	slice := top + "-pod1.slice"
	systemctl(t, "set-property", "--runtime", slice, "MemoryMax="+podMemory, "TasksMax="+podTasks)
	systemctl(t, "start", slice)
	t.Cleanup(func() { systemctl(t, "stop", slice, top+".slice") })
	path := "/" + top + ".slice/" + slice
	return podCgroup{
		path: path,
		spec: func(id string) string { return slice + ":cri-containerd:" + id },
		dir:  func(id string) string { return path + "/cri-containerd-" + id + ".scope" },
	}
}

// The limits of a pod are those of the pod's cgroup, above the cgroups of its containers. They
// hold, and no container changes them by its start, its update or its end.
// requirements.md#C1
func TestContainersBelowACgroupWithLimits(t *testing.T) {
	for driver, begin := range map[string]func(*testing.T, string) podCgroup{"cgroupfs": withoutSystemd, "systemd": withSystemd} {
		t.Run(driver, func(t *testing.T) {
			eachOfOurs(t, func(t *testing.T, c *column) {
				name := fmt.Sprintf("%d%s%s", os.Getpid(), c.name, c.id())
				t.Cleanup(func() { c.expectNothingLeft(t) }) // before the cgroup is removed
				belowACgroupWithLimits(t, c, begin(t, name), name)
			})
		})
	}
}

func belowACgroupWithLimits(t *testing.T, c *column, pod podCgroup, name string) {
	ctx := c.context(t)
	limit := int64(32 << 20)
	small := c.running(t, []string{"testprog", "sleep", "1000"}, group(name),
		oci.WithCgroup(pod.spec(name+"a")), oci.WithMemoryLimit(uint64(limit)), oci.WithPidsLimit(40))
	smallEvents := c.listen(t, small.ID())
	container := c.container(t, allocating, group(name), oci.WithCgroup(pod.spec(name+"b"))) // without a limit of its own
	events := c.listen(t, container.ID())
	large := c.newTask(t, container, cio.NullIO)
	exited := c.wait(t, large)
	if err := large.Start(ctx); err != nil {
		t.Fatal(err)
	}
	expectInside(t, small.Pid(), pod.dir(name+"a"))
	expectInside(t, large.Pid(), pod.dir(name+"b"))
	memoryLimit.expect(t, small, "33554432")
	pidsLimit.expect(t, small, "40")

	limit = 48 << 20
	if err := small.Update(ctx, containerd.WithResources(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})); err != nil {
		t.Error(err)
	}
	memoryLimit.expect(t, small, "50331648")

	feed(t, large.Pid()) // it asks for as much memory as the pod has
	expectExit(t, exited, 137)
	events.await(t, "exit init 137")
	if words := events.words(); !slices.Contains(words, "oom") || slices.Index(words, "oom") > slices.Index(words, "exit init 137") {
		t.Errorf("events of who was killed: %q", words)
	}
	if words := smallEvents.words(); slices.Contains(words, "oom") {
		t.Errorf("events of who was spared: %q", words)
	}
	expectStatus(t, ctx, small, containerd.Running)
	for _, task := range []containerd.Task{small, large} {
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
			t.Errorf("delete %s: %v", task.ID(), err)
		}
	}
	wait.Observe(t, "the containers' cgroups are gone", func() (bool, string) {
		left := slices.DeleteFunc([]string{pod.dir(name + "a"), pod.dir(name + "b")}, func(dir string) bool {
			return !exists(filepath.Dir(memoryLimit.of(dir)))
		})
		return len(left) == 0, strings.Join(left, " ")
	})
	if memory, tasks := pod.limit(t, memoryLimit), pod.limit(t, pidsLimit); memory != podMemory || tasks != podTasks {
		t.Errorf("the limits of the pod are %s bytes and %s tasks", memory, tasks)
	}
}

// A container that may write to its cgroups can enable controllers for cgroups below its own,
// like systemd or a kubelet in a container. The container's own cgroup then takes no process
// any more, so an exec goes elsewhere.
// requirements.md#C1
func TestAContainerWithCgroupsOfItsOwn(t *testing.T) {
	if !unified() {
		t.Skip("needs cgroup version 2")
	}
	eachRuntime(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"sh", "-c", `
			cd /sys/fs/cgroup && mkdir init work && echo 0 >init/cgroup.procs &&
			echo "+memory +pids" >cgroup.subtree_control && echo 33554432 >work/memory.max || exit 1
			(echo 0 >work/cgroup.procs; exec testprog sleep 1000) &
			wait`}, oci.WithMemoryLimit(64<<20), oci.WithMounts([]specs.Mount{{
			Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"rw", "nosuid", "noexec", "nodev"},
		}}), oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.CgroupNamespace}))
		own := filepath.Join("/sys/fs/cgroup", c.daemon.Namespace(), task.ID())
		wait.Observe(t, "it has made its cgroups", func() (bool, string) {
			b, err := os.ReadFile(own + "/work/cgroup.procs")
			return len(b) > 0, fmt.Sprint(err)
		})
		exec, err := task.Exec(ctx, "e", process(t, ctx, task, "testprog", "sleep", "1000"), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectInside(t, exec.Pid(), strings.TrimPrefix(own, "/sys/fs/cgroup"))
		if pids, err := task.Pids(ctx); err != nil || len(pids) != 3 {
			t.Errorf("processes %v, %v", pids, err)
		}
		if f := readFigures(t, c, task); f.processes < 3 || f.limit != 64<<20 {
			t.Errorf("figures %+v", f)
		}
		limit := int64(96 << 20)
		if err := task.Update(ctx, containerd.WithResources(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})); err != nil {
			t.Error(err)
		}
		if got, inner := strings.TrimSpace(read(t, own+"/memory.max")), strings.TrimSpace(read(t, own+"/work/memory.max")); got != strconv.FormatInt(limit, 10) || inner != "33554432" {
			t.Errorf("memory.max is %s, and of what it has made %s", got, inner)
		}
		if err := task.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{own, own + "/init", own + "/work"} {
			if !strings.Contains(read(t, dir+"/cgroup.events"), "frozen 1\n") {
				t.Errorf("%s is not frozen", dir)
			}
		}
		if err := task.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, task)
		if err := task.Kill(ctx, syscall.SIGKILL, containerd.WithKillAll); err != nil {
			t.Error(err)
		}
		expectExit(t, exited, 137)
		deleteTask(t, ctx, task)
		if exists(own) {
			t.Errorf("%s is left", own)
		}
	})
}

// If a container may write to the cgroups of the host, it can leave its own cgroup, and a kill
// of that cgroup would not reach it.
// requirements.md#T9
func TestKillAllEndsAProgramThatHasLeftItsCgroup(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		roots, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs") // the pattern is good
		if unified() {
			roots = []string{"/sys/fs/cgroup/cgroup.procs"}
		}
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			task := c.running(t, []string{"sh", "-c", "trap 'exit 7' TERM; testprog sleep 1000 & while :; do sleep 0.1; done"})
			wait.Observe(t, "the program is past its trap", func() (bool, string) {
				pids, err := task.Pids(c.context(t))
				return len(pids) > 1, fmt.Sprint(pids, err)
			})
			for _, root := range roots {
				move(t, int(task.Pid()), filepath.Dir(root))
			}
			exited := c.wait(t, task)
			if err := task.Kill(c.context(t), sig, containerd.WithKillAll); err != nil {
				t.Error(err)
			}
			expectExit(t, exited, map[syscall.Signal]uint32{syscall.SIGTERM: 7, syscall.SIGKILL: 137}[sig])
		}
	})
}

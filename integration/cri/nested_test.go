package cri

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nest is a script that makes cgroups below the container's own, enables a controller for them
// and limits one, as systemd or a kubelet would in a container. A process can leave the root of
// a namespace only for a cgroup below it.
const nest = `
cd /sys/fs/cgroup && mkdir init work && echo 0 >init/cgroup.procs &&
echo "+memory +pids" >cgroup.subtree_control && echo 33554432 >work/memory.max || exit 1
(echo 0 >work/cgroup.procs && cat /proc/self/cgroup && exec sleep 1000) &
if echo 1 2>/dev/null >memory.max; then echo "its own limit was for it to change"; fi
echo ready
trap 'exit 0' TERM; wait`

// writable returns the column with a handler whose containers may write to their cgroups.
func (c *column) writable() *column {
	other := *c
	other.handler = c.withWritableCgroups()
	return &other
}

func nestedCgroups(t *testing.T, c *column) {
	p := c.writable().pod(t)
	// Root can change the limit of its own cgroup, because without a user namespace the cgroup
	// belongs to it.
	one := p.run("a", sh(strings.Replace(nest, "if echo 1 ", "if false ", 1)),
		limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 64 << 20 }))
	one.expectNested("67108864")
}

func nestedCgroupsOfUser(t *testing.T, c *column) {
	p := c.writable().pod(t)
	one := p.run("a", sh(nest), secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUser, s.RunAsGroup = id(1000), id(1000) }),
		limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 64 << 20 }))
	one.expectNested("67108864")
}

func nestedCgroupsOfNamespace(t *testing.T, c *column) {
	c.needUserNamespaces(t)
	p := c.writable().withUserNamespace(t)
	one := p.run("a", sh(nest), limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 64 << 20 }))
	one.expectNested("67108864")
}

// expectNested checks the cgroups that nest has made, from inside and from outside, and stops
// the container. Then none of them may be left.
func (c *container) expectNested(limit string) {
	c.t.Helper()
	c.awaitLog("ready")
	c.awaitLog("0::/work")
	if l := c.log(); strings.Contains(l, "limit") {
		c.t.Errorf("it wrote:\n%s", l)
	}
	c.expectCgroup(nil, map[string]string{"memory.max": limit, "work/memory.max": "33554432"})
	// The container's cgroup takes no process any more, because it has children. An exec goes
	// to the cgroup of one of the container's processes.
	if out := c.exec("sh", "-c", "cat /proc/self/cgroup; ls /sys/fs/cgroup/work/memory.max"); !strings.Contains(out, "0::/") {
		c.t.Errorf("an exec is in %q", out)
	}
	s, err := c.runtime.ContainerStats(testContext(c.t), c.id)
	if err != nil || s.GetMemory().GetUsageBytes().GetValue() == 0 {
		c.t.Errorf("statistics %v, %v", s, err)
	}
	c.stop(20)
	c.expectExit(0)
	c.remove()
}

package cri

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// version2 is the section about features that need cgroup version 2.
func version2() section {
	return section{"Cgroups of version 2", []feature{
		{"a container sees its cgroup as the root", cgroupNamespace},
		{"what a pod may have holds for its containers", podLimits},
		{"a pod and a container are resized, and systemd reloaded", resizeBoth},
		{"statistics of a pod are those of its cgroup", podStatsOfCgroup},
		{"swap", swap},
		{"all of a container ends with who was out of memory (memory.oom.group)", oomGroup},
		{"cgroups of a container's own", nestedCgroups},
		{"cgroups of a user's own", nestedCgroupsOfUser},
		{"cgroups of a user namespace's own", nestedCgroupsOfNamespace},
	}}
}

// limitsOfPod are limits that the kubelet gives a pod.
type limitsOfPod struct {
	memory, tasks uint64
	cpu           uint64 // in hundredths of a processor
}

// limitPod gives limits to a pod's cgroup.
func (c *column) limitPod(t *testing.T, path string, l limitsOfPod) {
	t.Helper()
	if c.systemd {
		limitSlice(t, filepath.Base(path), map[string]uint64{
			"MemoryMax": l.memory, "TasksMax": l.tasks, "CPUQuotaPerSecUSec": l.cpu * 10000,
		})
		return
	}
	for file, value := range l.files() {
		if err := os.WriteFile(filepath.Join(cgroupDir(t, "", path), file), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func (l limitsOfPod) files() map[string]string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return map[string]string{"memory.max": number(l.memory), "pids.max": number(l.tasks), "cpu.max": number(l.cpu*1000) + " 100000"}
}

// expectLimits compares the limits that a pod has.
func (p *pod) expectLimits(l limitsOfPod) {
	p.t.Helper()
	for file, want := range l.files() {
		if got := p.read(file); got != want {
			p.t.Errorf("%s of the pod is %q, want %q", file, got, want)
		}
	}
}

// read reads a file of the pod's cgroup.
func (p *pod) read(file string) string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(cgroupDir(p.t, "", p.config.GetLinux().GetCgroupParent()), file))
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func cgroupNamespace(t *testing.T, c *column) {
	one := c.pod(t).run("a", forever())
	for _, script := range []string{"cat /proc/1/cgroup", "cat /proc/self/cgroup"} {
		if out := one.exec("sh", "-c", script); out != "0::/\n" {
			t.Errorf("%s says %q", script, out)
		}
	}
	if out := one.exec("cat", "/sys/fs/cgroup/cgroup.procs"); !strings.HasPrefix(out, "1\n") {
		t.Errorf("processes of the cgroup that it sees: %q", out)
	}
	if code, _, errout := one.execCode("mkdir", "/sys/fs/cgroup/x"); code == 0 || !strings.Contains(errout, "Read-only") {
		t.Errorf("mkdir ended with %d: %s", code, errout)
	}
}

// The limits of the pod's cgroup hold for all of its containers, one of which has no limit of
// its own.
func podLimits(t *testing.T, c *column) {
	p := c.pod(t)
	limits := limitsOfPod{memory: 96 << 20, tasks: 120, cpu: 80}
	c.limitPod(t, p.config.GetLinux().GetCgroupParent(), limits)
	witness := p.run("witness", forever(), limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 32 << 20 }))
	greedy := p.run("greedy", []string{"/bin/testprog", "allocate", "400"})
	if s := greedy.expectExit(137); s.GetReason() != "OOMKilled" {
		t.Errorf("reason %q", s.GetReason())
	}
	witness.expectRunning()
	witness.expectCgroup(nil, map[string]string{"memory.max": "33554432"})
	p.expectState(runtimeapi.PodSandboxState_SANDBOX_READY)
	p.expectLimits(limits)
	if events := p.read("memory.events"); strings.Contains(events, "oom_kill 0") {
		t.Errorf("no process was killed in the pod's cgroup:\n%s", events)
	}
}

func resizeBoth(t *testing.T, c *column) {
	p := c.pod(t)
	parent := p.config.GetLinux().GetCgroupParent()
	c.limitPod(t, parent, limitsOfPod{memory: 96 << 20, tasks: 120, cpu: 80})
	one := p.run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) {
		r.CpuPeriod, r.CpuQuota, r.CpuShares, r.MemoryLimitInBytes = 100000, 50000, 512, 64<<20
	}))
	limits := limitsOfPod{memory: 160 << 20, tasks: 150, cpu: 120}
	c.limitPod(t, parent, limits)
	if _, err := c.runtime.UpdatePodSandboxResources(testContext(t), &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: p.id,
		Overhead:     &runtimeapi.LinuxContainerResources{},
		Resources:    &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 120000, MemoryLimitInBytes: 160 << 20},
	}); err != nil {
		t.Errorf("update the pod's resources: %v", err)
	}
	if err := c.runtime.UpdateContainerResources(testContext(t), one.id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{
		CpuPeriod: 100000, CpuQuota: 90000, CpuShares: 1024, MemoryLimitInBytes: 128 << 20,
		Unified: map[string]string{"memory.high": "100663296"},
	}}); err != nil {
		t.Fatalf("update the container's resources: %v", err)
	}
	if systemdRuns() {
		reloadSystemd(t)
	}
	one.expectCgroup(nil, map[string]string{"cpu.max": "90000 100000", "memory.max": "134217728", "memory.high": "100663296"})
	p.expectLimits(limits)
	one.expectRunning()
}

func podStatsOfCgroup(t *testing.T, c *column) {
	const written = 24 << 20
	p := c.pod(t)
	one := p.run("a", sh("head -c 25165824 /dev/zero >/dev/shm/f; echo ready; trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"))
	one.awaitLog("ready")
	var used uint64
	wait.Observe(t, "the pod's statistics count what its container has", func() (bool, string) {
		s, err := c.runtime.PodSandboxStats(testContext(t), p.id)
		if err != nil {
			return false, err.Error()
		}
		used = s.GetLinux().GetMemory().GetUsageBytes().GetValue()
		return used >= written && s.GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0, s.String()
	})
	current, err := strconv.ParseUint(p.read("memory.current"), 10, 64)
	const tolerated = 16 << 20 // memory that was freed or taken between the two reads
	if err != nil || used > current+tolerated || current > used+tolerated {
		t.Errorf("the statistics say %d bytes, the pod's cgroup %d (%v)", used, current, err)
	}
}

func swap(t *testing.T, c *column) {
	p := c.pod(t)
	p.run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) {
		r.MemoryLimitInBytes, r.MemorySwapLimitInBytes = 64<<20, 80<<20
	})).expectCgroup(nil, map[string]string{"memory.max": "67108864", "memory.swap.max": "16777216"})
	p.run("none", forever(), limited(func(r *runtimeapi.LinuxContainerResources) {
		r.MemoryLimitInBytes, r.MemorySwapLimitInBytes = 64<<20, 64<<20
	})).expectCgroup(nil, map[string]string{"memory.swap.max": "0"})
	p.run("some", forever(), limited(func(r *runtimeapi.LinuxContainerResources) {
		r.Unified = map[string]string{"memory.swap.max": "8388608"}
	})).expectCgroup(nil, map[string]string{"memory.max": "max", "memory.swap.max": "8388608"})
}

func oomGroup(t *testing.T, c *column) {
	p := c.pod(t)
	greedy := sh("(/bin/testprog allocate 400); echo $?; sleep 1000")
	small := func(group string) func(*runtimeapi.ContainerConfig) {
		return limited(func(r *runtimeapi.LinuxContainerResources) {
			r.MemoryLimitInBytes, r.Unified = 48<<20, map[string]string{"memory.oom.group": group}
		})
	}
	one := p.run("together", greedy, small("1"))
	if s := one.expectExit(137); s.GetReason() != "OOMKilled" {
		t.Errorf("reason %q", s.GetReason())
	}
	two := p.run("alone", greedy, small("0"))
	two.awaitLog("137")
	two.expectRunning()
}

package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func resources() section {
	return section{"Resources and statistics", []feature{
		{"cgroups below the pod's", cgroupsBelowPod},
		{"limits of CPU and memory", limits},
		{"in-place resize", resize},
		{"in-place resize of a pod", resizePod},
		{"CPU sets", cpusets},
		{"OOM score", oomScore},
		{"huge pages", hugePages},
		{"unified (cgroup version 2)", unifiedResources},
		{"OOMKilled is said of the right container", oomKilled},
		{"statistics of a container", containerStats},
		{"statistics of all containers", listContainerStats},
		{"statistics of a pod", podStats},
		{"metrics of pods", podMetrics},
	}}
}

// read reads a file of a container's cgroup.
func (c *container) read(controller, file string) string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(cgroupDir(c.t, controller, c.cgroup()), file))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// expectCgroup compares files of a container's cgroup. Keys are CONTROLLER/FILE in v1 and FILE
// in v2.
func (c *container) expectCgroup(v1, v2 map[string]string) {
	c.t.Helper()
	want := v1
	if unified() {
		want = v2
	}
	for path, value := range want {
		controller, file := "", path
		if !unified() {
			controller, file, _ = strings.Cut(path, "/")
		}
		if got := c.read(controller, file); got != value {
			c.t.Errorf("%s is %q, want %q", path, got, value)
		}
	}
}

func cgroupsBelowPod(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", forever())
	controllers := []string{"memory", "cpu", "pids", "devices", "freezer"}
	if unified() {
		controllers = []string{""}
	}
	for _, controller := range controllers {
		pids := lines(one.read(controller, "cgroup.procs"))
		if len(pids) == 0 || pids[0] == "" {
			t.Errorf("%s: no process is in the container's cgroup", controller)
		}
	}
	if out := one.exec("cat", "/proc/self/cgroup"); !strings.Contains(out, one.id) && !unified() { // version 2 has a cgroup namespace
		t.Errorf("an exec is in\n%s", out)
	}
}

func limits(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) {
		r.CpuPeriod, r.CpuQuota, r.CpuShares, r.MemoryLimitInBytes = 100000, 50000, 512, 64<<20
	}))
	one.expectCgroup(map[string]string{
		"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000", "cpu/cpu.shares": "512",
		"memory/memory.limit_in_bytes": "67108864",
	}, map[string]string{"cpu.max": "50000 100000", "memory.max": "67108864"})
	r := one.status().GetResources().GetLinux()
	if r.GetCpuQuota() != 50000 || r.GetMemoryLimitInBytes() != 64<<20 {
		t.Errorf("the status says %v", r)
	}
}

func resize(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) {
		r.CpuPeriod, r.CpuQuota, r.MemoryLimitInBytes = 100000, 50000, 64<<20
	}))
	update := func(r *runtimeapi.LinuxContainerResources) error {
		return c.runtime.UpdateContainerResources(testContext(t), one.id, &runtimeapi.ContainerResources{Linux: r})
	}
	if err := update(&runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 70000, CpuShares: 700, MemoryLimitInBytes: 96 << 20}); err != nil {
		t.Fatalf("more: %v", err)
	}
	one.expectCgroup(map[string]string{
		"cpu/cpu.cfs_quota_us": "70000", "cpu/cpu.shares": "700", "memory/memory.limit_in_bytes": "100663296",
	}, map[string]string{"cpu.max": "70000 100000", "memory.max": "100663296"})
	// Limits that are not given do not change.
	if err := update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 48 << 20}); err != nil {
		t.Fatalf("less memory: %v", err)
	}
	one.expectCgroup(map[string]string{
		"cpu/cpu.cfs_quota_us": "70000", "memory/memory.limit_in_bytes": "50331648",
	}, map[string]string{"cpu.max": "70000 100000", "memory.max": "50331648"})
	if got := one.status().GetResources().GetLinux().GetMemoryLimitInBytes(); got != 48<<20 {
		t.Errorf("the status says %d", got)
	}
	one.expectRunning()
	// A created container can be resized, too. A removed one cannot.
	two := p.create("b", forever())
	if err := c.runtime.UpdateContainerResources(testContext(t), two.id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}}); err != nil {
		t.Errorf("resize a created container: %v", err)
	}
	two.start()
	two.expectCgroup(map[string]string{"memory/memory.limit_in_bytes": "33554432"}, map[string]string{"memory.max": "33554432"})
	one.stop(0)
	one.expectExit(137)
}

// The kubelet owns a pod's cgroup, and writes the limits of this call to it. If a runtime wrote
// them, too, it would undo what the kubelet has written since. So the call succeeds with every
// handler, and changes no limit.
func resizePod(t *testing.T, c *column) {
	p := c.pod(t)
	p.setMemory(96 << 20)
	one := p.run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 64 << 20 }))
	for _, memory := range []int64{128 << 20, 32 << 20} {
		_, err := c.runtime.UpdatePodSandboxResources(testContext(t), &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: p.id,
			Overhead:     &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 8 << 20},
			Resources:    &runtimeapi.LinuxContainerResources{CpuShares: 300, MemoryLimitInBytes: memory},
		})
		if err != nil {
			t.Errorf("update the pod's resources: %v", err)
		}
		if got := p.memory(); got != 96<<20 {
			t.Errorf("after a resize to %d the limit of the pod's cgroup is %d", memory, got)
		}
		one.expectCgroup(map[string]string{"memory/memory.limit_in_bytes": "67108864"}, map[string]string{"memory.max": "67108864"})
		p.expectState(runtimeapi.PodSandboxState_SANDBOX_READY)
	}
	p.stop()
	if _, err := c.runtime.UpdatePodSandboxResources(testContext(t), &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "nobody"}); err == nil {
		t.Error("a pod that there is not was resized")
	}
}

// setMemory changes the limit of the pod's cgroup, as the kubelet does.
func (p *pod) setMemory(limit uint64) {
	p.t.Helper()
	if unified() {
		p.limitPod(p.t, p.config.GetLinux().GetCgroupParent(), limitsOfPod{memory: limit, tasks: 500, cpu: 200})
		return
	}
	if err := os.WriteFile(p.memoryFile(), fmt.Append(nil, limit), 0); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) memory() (limit uint64) {
	p.t.Helper()
	b, err := os.ReadFile(p.memoryFile())
	if err == nil {
		limit, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return limit
}

func (p *pod) memoryFile() string {
	p.t.Helper()
	if unified() {
		return filepath.Join(cgroupDir(p.t, "", p.config.GetLinux().GetCgroupParent()), "memory.max")
	}
	return filepath.Join(cgroupDir(p.t, "memory", p.config.GetLinux().GetCgroupParent()), "memory.limit_in_bytes")
}

func cpusets(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) { r.CpusetCpus, r.CpusetMems = "0", "0" }))
	one.expectCgroup(map[string]string{"cpuset/cpuset.cpus": "0", "cpuset/cpuset.mems": "0"}, map[string]string{"cpuset.cpus": "0", "cpuset.mems": "0"})
	if out := one.exec("grep", "Cpus_allowed_list", "/proc/self/status"); strings.Fields(out)[1] != "0" {
		t.Errorf("an exec runs on %s", out)
	}
}

func oomScore(t *testing.T, c *column) {
	p := c.pod(t)
	if r := p.inspect(limited(func(r *runtimeapi.LinuxContainerResources) { r.OomScoreAdj = 987 })); r.OOMScoreAdj != "987" {
		t.Errorf("oom_score_adj is %s", r.OOMScoreAdj)
	}
}

func hugePages(t *testing.T, c *column) {
	p := c.pod(t)
	limit := limited(func(r *runtimeapi.LinuxContainerResources) {
		r.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}}
	})
	_, v1 := hierarchies(t)["hugetlb"]
	if !v1 && !unified() {
		// CRI leaves out limits for which the machine has no controller.
		p.output("a", sh("true"), limit)
		c.skip(t, "this machine has no hugetlb controller; the limit is left out by CRI")
	}
	p.run("a", forever(), limit).expectCgroup(map[string]string{"hugetlb/hugetlb.2MB.limit_in_bytes": "4194304"}, map[string]string{"hugetlb.2MB.max": "4194304"})
}

func unifiedResources(t *testing.T, c *column) {
	if !unified() {
		c.skip(t, "this machine has cgroup version 1")
	}
	one := c.pod(t).run("a", forever(), limited(func(r *runtimeapi.LinuxContainerResources) {
		r.Unified = map[string]string{"memory.low": "1048576", "memory.high": "67108864", "pids.max": "77"}
	}))
	one.expectCgroup(nil, map[string]string{"memory.low": "1048576", "memory.high": "67108864", "pids.max": "77"})
}

func oomKilled(t *testing.T, c *column) {
	p := c.pod(t)
	small := limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 32 << 20 })
	witness := p.run("witness", forever(), small)
	// The container had an OOM kill, but did not die of it.
	killed := p.run("killed", sh("sleep 0.2; kill -KILL $$"), withSharedPID)
	greedy := p.run("greedy", []string{"/bin/testprog", "allocate", "400"}, small)
	if s := greedy.expectExit(137); s.GetReason() != "OOMKilled" {
		t.Errorf("reason %q", s.GetReason())
	}
	if s := killed.expectExit(137); s.GetReason() != "Error" {
		t.Errorf("of one that was merely killed: %q", s.GetReason())
	}
	witness.expectRunning()
	p.expectState(runtimeapi.PodSandboxState_SANDBOX_READY)
}

func containerStats(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", sh("head -c 10000000 /dev/zero >/tmp/f; echo ready; while :; do :; done"),
		limited(func(r *runtimeapi.LinuxContainerResources) { r.CpuPeriod, r.CpuQuota = 100000, 20000 }))
	one.awaitLog("ready")
	wait.Observe(t, "all statistics are there", func() (bool, string) {
		s, err := c.runtime.ContainerStats(testContext(t), one.id)
		if err != nil {
			return false, err.Error()
		}
		return s.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0 &&
			s.GetMemory().GetWorkingSetBytes().GetValue() > 0 && s.GetMemory().GetUsageBytes().GetValue() > 0 &&
			s.GetWritableLayer().GetUsedBytes().GetValue() >= 10000000 &&
			s.GetAttributes().GetId() == one.id, s.String()
	})
}

func listContainerStats(t *testing.T, c *column) {
	p := c.pod(t)
	busy := sh("while :; do :; done")
	little := limited(func(r *runtimeapi.LinuxContainerResources) { r.CpuPeriod, r.CpuQuota = 100000, 20000 })
	want := []string{p.run("a", busy, little).id, p.run("b", busy, little).id}
	p.run("gone", sh("true")).expectExit(0)
	wait.Observe(t, "those of both that run are there", func() (bool, string) {
		all, err := c.runtime.ListContainerStats(testContext(t), &runtimeapi.ContainerStatsFilter{PodSandboxId: p.id})
		if err != nil {
			return false, err.Error()
		}
		var found []string
		for _, s := range all {
			if s.GetCpu().GetUsageNanoCores().GetValue() > 0 && s.GetMemory().GetUsageBytes().GetValue() > 0 {
				found = append(found, s.GetAttributes().GetId())
			}
		}
		slices.Sort(found)
		slices.Sort(want)
		return slices.Equal(found, want), fmt.Sprint(all)
	})
}

func podStats(t *testing.T, c *column) {
	p := c.pod(t)
	p.run("a", forever())
	wait.Observe(t, "all statistics are there", func() (bool, string) {
		s, err := c.runtime.PodSandboxStats(testContext(t), p.id)
		if err != nil {
			return false, err.Error()
		}
		l := s.GetLinux()
		return len(l.GetContainers()) == 1 && l.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0 &&
			l.GetMemory().GetUsageBytes().GetValue() > 0 && l.GetProcess().GetProcessCount().GetValue() > 0 &&
			l.GetNetwork().GetDefaultInterface().GetName() == "eth0", s.String()
	})
	list, err := c.runtime.ListPodSandboxStats(testContext(t), &runtimeapi.PodSandboxStatsFilter{Id: p.id})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d pods have statistics: %v", len(list), err)
	}
	// The kubelet has no other source for the network of a pod without a pause container.
	if n := list[0].GetLinux().GetNetwork().GetDefaultInterface(); n.GetName() != "eth0" || n.GetRxBytes() == nil || n.GetTxBytes() == nil {
		t.Errorf("the network in the list of statistics is %v", n)
	}
}

func podMetrics(t *testing.T, c *column) {
	p := c.pod(t)
	one := p.run("a", forever())
	wait.Observe(t, "there are metrics of the container", func() (bool, string) {
		all, err := c.runtime.ListPodSandboxMetrics(testContext(t))
		if err != nil {
			return false, err.Error()
		}
		for _, m := range all {
			if m.GetPodSandboxId() != p.id {
				continue
			}
			for _, cm := range m.GetContainerMetrics() {
				if cm.GetContainerId() == one.id && len(cm.GetMetrics()) > 0 {
					return true, ""
				}
			}
		}
		return false, strconv.Itoa(len(all)) + " pods"
	})
}

package pod

import (
	"encoding/json"
	"path"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// describe tells `run` of the pod.
func (o origin) describe(r *abi.Request, p *Pod) {
	r.Annotations, r.Labels, r.Netns, r.Resources = o.annotations, o.labels, o.netns, o.resources
	if o.cgroup == "" {
		return
	}
	if g, err := cgroup.Open(o.cgroup, p.cfg.Cgroups); err == nil {
		r.PodCgroup = g.ABI()
	}
}

// origin describes the pod of a sandbox.
func (c *SandboxConfig) origin() origin {
	o := origin{annotations: c.Annotations, labels: c.Labels, resources: c.Resources, cgroup: c.CgroupParent}
	for _, ns := range c.Namespaces {
		if ns.Type == string(specs.NetworkNamespace) {
			o.netns = ns.Path
		}
	}
	return o
}

// Annotations by which containerd's CRI describes a pod to its pause container.
const (
	criType    = "io.kubernetes.cri.container-type" // "sandbox" is the pause container
	criMemory  = "io.kubernetes.cri.sandbox-memory"
	criQuota   = "io.kubernetes.cri.sandbox-cpu-quota"
	criPeriod  = "io.kubernetes.cri.sandbox-cpu-period"
	criShares  = "io.kubernetes.cri.sandbox-cpu-shares"
	criSandbox = "sandbox"
)

// origin describes the pod that an app begins. A pause container has the sums of its pod's
// limits in annotations, and the pod's cgroup is the parent of its own.
func (a *app) origin() origin {
	s := a.spec()
	o := origin{annotations: s.Annotations}
	o.netns, _ = spec.Namespace(s, specs.NetworkNamespace)
	var limits *specs.LinuxResources
	if s.Linux != nil {
		limits = s.Linux.Resources
	}
	if s.Annotations[criType] == criSandbox {
		limits = criLimits(s.Annotations)
		own := cgroup.Path{Spec: s.Linux.CgroupsPath, Namespace: a.pod.cfg.Key.Namespace, ID: string(a.id), Daemon: a.pod.cfg.Cgroups}
		if p, err := own.Resolve(); err == nil {
			o.cgroup = path.Dir(p)
		}
	}
	if limits != nil {
		o.resources, _ = json.Marshal(limits) // it was JSON
	}
	return o
}

// criLimits returns the sums of a pod's limits that annotations have. A sum of 0 means that
// there is no limit.
func criLimits(annotations map[string]string) *specs.LinuxResources {
	number := func(name string) *int64 {
		n, err := strconv.ParseInt(annotations[name], 10, 64)
		if err != nil || n == 0 {
			return nil
		}
		return &n
	}
	unsigned := func(name string) *uint64 {
		n := number(name)
		if n == nil || *n < 0 {
			return nil
		}
		u := uint64(*n)
		return &u
	}
	r := &specs.LinuxResources{}
	if limit := number(criMemory); limit != nil {
		r.Memory = &specs.LinuxMemory{Limit: limit}
	}
	cpu := specs.LinuxCPU{Quota: number(criQuota), Period: unsigned(criPeriod), Shares: unsigned(criShares)}
	if cpu.Quota != nil || cpu.Shares != nil {
		r.CPU = &cpu
	}
	return r
}

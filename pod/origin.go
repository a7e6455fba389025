package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// describe tells `run` of the pod. It returns the cgroup that the client has made for the pod, or nil
// if there is none. Any other error is returned, because the pod would run without its limits.
func (o origin) describe(r *abi.Request, p *Pod) (*cgroup.Group, error) {
	r.Annotations, r.Labels, r.Netns, r.Resources = o.annotations, o.labels, o.netns, o.resources
	if o.cgroup == "" {
		return nil, nil
	}
	g, err := cgroup.Open(o.cgroup, p.cfg.Cgroups)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the pod's cgroup: %w", err)
	}
	r.PodCgroup = g.ABI()
	return g, nil
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
	o := origin{annotations: s.Annotations, bundle: a.config.Bundle, spec: a.config.Spec}
	o.netns, _ = spec.Namespace(s, specs.NetworkNamespace)
	switch {
	case s.Annotations[criType] == criSandbox:
		sum := func(name string) int64 {
			n, _ := strconv.ParseInt(s.Annotations[name], 10, 64) // 0 if it is not there
			return n
		}
		o.resources = PodLimits(sum(criMemory), sum(criQuota), sum(criPeriod), sum(criShares))
		if s.Linux == nil {
			break
		}
		own := cgroup.Path{Spec: s.Linux.CgroupsPath, Namespace: a.pod.cfg.Key.Namespace, ID: string(a.id), Daemon: a.pod.cfg.Cgroups}
		if p, err := own.Resolve(); err == nil {
			o.cgroup = path.Dir(p)
		}
	case s.Linux != nil && s.Linux.Resources != nil:
		o.resources, _ = plainjson.Encode(s.Linux.Resources) // it was JSON
	}
	return o
}

// PodLimits returns the sums of the limits of a pod's containers, as CRI has them, as an OCI
// linux.resources object. A sum of 0 means that there is no limit.
func PodLimits(memory, quota, period, shares int64) []byte {
	var r specs.LinuxResources
	if memory != 0 {
		r.Memory = &specs.LinuxMemory{Limit: &memory}
	}
	var cpu specs.LinuxCPU
	if quota != 0 {
		p := uint64(max(period, 0))
		cpu.Quota, cpu.Period = &quota, &p
	}
	if shares > 0 {
		s := uint64(shares)
		cpu.Shares = &s
	}
	if cpu != (specs.LinuxCPU{}) {
		r.CPU = &cpu
	}
	text, _ := plainjson.Encode(r) // numbers alone
	return text
}

package cgroup

import (
	"fmt"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// limited returns the version 1 controllers that the resources need.
func limited(res *specs.LinuxResources) map[string]bool {
	c := res.CPU
	if c == nil {
		c = &specs.LinuxCPU{}
	}
	n := res.Network
	if n == nil {
		n = &specs.LinuxNetwork{}
	}
	m := res.Memory
	return map[string]bool{
		"memory": m != nil && (value(m.Limit) != 0 || value(m.Reservation) != 0 || value(m.Swap) != 0 ||
			m.Swappiness != nil || value(m.DisableOOMKiller) || value(m.KernelTCP) != 0),
		"cpu": value(c.Shares) != 0 || value(c.Quota) != 0 || value(c.Period) != 0 || c.Burst != nil ||
			value(c.RealtimeRuntime) != 0 || value(c.RealtimePeriod) != 0 || c.Idle != nil,
		"cpuset":   c.Cpus != "" || c.Mems != "",
		"pids":     res.Pids != nil && res.Pids.Limit != nil,
		"blkio":    wantsBlockIO(res.BlockIO),
		"hugetlb":  len(res.HugepageLimits) > 0,
		"net_cls":  value(n.ClassID) != 0,
		"net_prio": len(n.Priorities) > 0,
		"rdma":     len(res.Rdma) > 0,
	}
}

// wantsBlockIO reports whether b has any limit. Docker sends an empty b.
func wantsBlockIO(b *specs.LinuxBlockIO) bool {
	return b != nil && (value(b.Weight) != 0 || value(b.LeafWeight) != 0 ||
		len(b.WeightDevice)+len(b.ThrottleReadBpsDevice)+len(b.ThrottleWriteBpsDevice)+
			len(b.ThrottleReadIOPSDevice)+len(b.ThrottleWriteIOPSDevice) > 0)
}

// Check refuses limits that Create would refuse on this machine before it makes a cgroup.
func Check(res *specs.LinuxResources) error {
	h, err := host()
	if err == nil {
		err = h.check(res)
	}
	if err == nil {
		_, err = convert(res, h.version)
	}
	return err
}

// check refuses limits that would not be enforced.
func (h *hierarchies) check(res *specs.LinuxResources) error {
	if res == nil {
		return nil
	}
	if err := checkMemory(res.Memory); err != nil {
		return err
	}
	if h.version == 2 {
		return checkV2(res)
	}
	if len(res.Unified) > 0 {
		return fmt.Errorf("linux.resources.unified: cannot be set, this host has cgroup v1")
	}
	for name, wanted := range limited(res) {
		if _, mounted := h.roots[name]; wanted && !mounted {
			return fmt.Errorf("cannot set %s limit: the %s cgroup is not mounted", name, name)
		}
	}
	return nil
}

func checkMemory(m *specs.LinuxMemory) error {
	if m == nil {
		return nil
	}
	if m.UseHierarchy != nil && !*m.UseHierarchy {
		return fmt.Errorf("linux.resources.memory.useHierarchy: false is not possible any more")
	}
	if limit, swap := value(m.Limit), value(m.Swap); swap > 0 && limit > swap {
		return fmt.Errorf("linux.resources.memory.swap: %d is for memory and swap together, and less than the limit of memory, %d", swap, limit)
	}
	return nil
}

// checkV2 refuses limits for which version 2 has no file. If a controller is not
// delegated, writing its file fails later.
func checkV2(res *specs.LinuxResources) error {
	for name := range res.Unified {
		if strings.ContainsAny(name, `/*?[\`) {
			return fmt.Errorf("linux.resources.unified: %q is not the name of a file", name)
		}
	}
	c, m, b, n := res.CPU, res.Memory, res.BlockIO, res.Network
	leaf := false
	if b != nil {
		leaf = value(b.LeafWeight) != 0
		for _, d := range b.WeightDevice {
			leaf = leaf || value(d.LeafWeight) != 0
		}
	}
	for _, f := range []struct {
		field  string
		wanted bool
	}{
		{"cpu.realtimeRuntime", c != nil && value(c.RealtimeRuntime) != 0},
		{"cpu.realtimePeriod", c != nil && value(c.RealtimePeriod) != 0},
		{"memory.swappiness", m != nil && m.Swappiness != nil},
		{"memory.kernelTCP", m != nil && value(m.KernelTCP) != 0},
		{"memory.disableOOMKiller", m != nil && value(m.DisableOOMKiller)},
		{"blockIO.leafWeight", leaf},
		{"network.classID", n != nil && value(n.ClassID) != 0},
		{"network.priorities", n != nil && len(n.Priorities) > 0},
	} {
		if f.wanted {
			return fmt.Errorf("linux.resources.%s: cannot be set, this host has cgroup v2", f.field)
		}
	}
	return nil
}

package cgroup

import (
	"github.com/opencontainers/cgroups"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// convert translates the OCI spec's resources into the library's type, for one version of
// cgroups. The caller has called check. convert drops only the limits that docs/layout.md
// names.
func convert(res *specs.LinuxResources, version int) (*cgroups.Resources, error) {
	if res == nil {
		res = &specs.LinuxResources{}
	}
	r := &cgroups.Resources{}
	var err error
	if r.Devices, err = convertDevices(res.Devices); err != nil {
		return nil, err
	}
	convertMemory(r, res.Memory)
	convertCPU(r, res.CPU, version)
	if p := res.Pids; p != nil {
		r.PidsLimit = p.Limit
	}
	convertBlockIO(r, res.BlockIO)
	for _, h := range res.HugepageLimits {
		r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: h.Pagesize, Limit: h.Limit})
	}
	if n := res.Network; n != nil {
		r.NetClsClassid = value(n.ClassID)
		for _, p := range n.Priorities {
			r.NetPrioIfpriomap = append(r.NetPrioIfpriomap, &cgroups.IfPrioMap{Interface: p.Name, Priority: int64(p.Priority)})
		}
	}
	if len(res.Rdma) > 0 {
		r.Rdma = map[string]cgroups.LinuxRdma{}
	}
	for name, l := range res.Rdma {
		r.Rdma[name] = cgroups.LinuxRdma{HcaHandles: l.HcaHandles, HcaObjects: l.HcaObjects}
	}
	if len(res.Unified) > 0 {
		r.Unified = res.Unified
	}
	return r, nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func convertMemory(r *cgroups.Resources, m *specs.LinuxMemory) {
	if m == nil {
		return
	}
	r.Memory = value(m.Limit)
	r.MemoryReservation = value(m.Reservation)
	r.MemorySwap = value(m.Swap)
	r.MemorySwappiness = m.Swappiness
	r.OomKillDisable = value(m.DisableOOMKiller)
	r.MemoryCheckBeforeUpdate = value(m.CheckBeforeUpdate)
}

func convertCPU(r *cgroups.Resources, c *specs.LinuxCPU, version int) {
	if c == nil {
		return
	}
	r.CpuShares = value(c.Shares)
	if version == 2 {
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	}
	r.CpuQuota = value(c.Quota)
	r.CpuPeriod = value(c.Period)
	r.CpuBurst = c.Burst
	r.CpuRtRuntime = value(c.RealtimeRuntime)
	r.CpuRtPeriod = value(c.RealtimePeriod)
	r.CpusetCpus = c.Cpus
	r.CpusetMems = c.Mems
	r.CPUIdle = c.Idle
}

func convertBlockIO(r *cgroups.Resources, b *specs.LinuxBlockIO) {
	if b == nil {
		return
	}
	r.BlkioWeight = value(b.Weight)
	r.BlkioLeafWeight = value(b.LeafWeight)
	for _, d := range b.WeightDevice {
		r.BlkioWeightDevice = append(r.BlkioWeightDevice, cgroups.NewWeightDevice(d.Major, d.Minor, value(d.Weight), value(d.LeafWeight)))
	}
	r.BlkioThrottleReadBpsDevice = throttles(b.ThrottleReadBpsDevice)
	r.BlkioThrottleWriteBpsDevice = throttles(b.ThrottleWriteBpsDevice)
	r.BlkioThrottleReadIOPSDevice = throttles(b.ThrottleReadIOPSDevice)
	r.BlkioThrottleWriteIOPSDevice = throttles(b.ThrottleWriteIOPSDevice)
}

func throttles(ds []specs.LinuxThrottleDevice) []*cgroups.ThrottleDevice {
	var list []*cgroups.ThrottleDevice
	for _, d := range ds {
		list = append(list, cgroups.NewThrottleDevice(d.Major, d.Minor, d.Rate))
	}
	return list
}

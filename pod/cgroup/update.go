package cgroup

import (
	"errors"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Update changes the limits that res names and leaves the others as they are
// (requirement C3). Access to devices is not changed. If a limit cannot be set
// the old ones are put back.
func (g *Group) Update(res *specs.LinuxResources) error {
	h, err := host()
	if err != nil {
		return err
	}
	if err := h.check(res); err != nil {
		return fmt.Errorf("cgroup %s: %w", g.Path(), err)
	}
	// One update at a time: the limits depend on each other, and putting old
	// ones back must not undo somebody else's. The files answer at once.
	g.updating.Lock()
	defer g.updating.Unlock()
	old := g.limits
	merged := merge(old, res)
	if err := g.set(merged); err != nil {
		return errors.Join(fmt.Errorf("update cgroup %s: %w", g.Path(), err), g.set(old))
	}
	g.limits = merged
	return nil
}

func (g *Group) set(res *specs.LinuxResources) error {
	r, err := convert(res, g.record.Version)
	if err != nil {
		return err
	}
	r.SkipDevices = true
	m, err := g.manager(r)
	if err != nil {
		return err
	}
	return m.Set(r)
}

// merge returns old with the values that are set in change. Limits that the
// kernel wants together (quota and period, memory and swap) are so always
// written together, whichever of them the client names.
func merge(old, change *specs.LinuxResources) *specs.LinuxResources {
	m := *old
	m.Memory = mergeMemory(old.Memory, change.Memory)
	m.CPU = mergeCPU(old.CPU, change.CPU)
	if change.Pids != nil {
		m.Pids = change.Pids
	}
	m.BlockIO = mergeBlockIO(old.BlockIO, change.BlockIO)
	if change.HugepageLimits != nil {
		m.HugepageLimits = change.HugepageLimits
	}
	if change.Network != nil {
		m.Network = change.Network
	}
	if change.Rdma != nil {
		m.Rdma = change.Rdma
	}
	if change.Unified != nil {
		m.Unified = change.Unified
	}
	return &m
}

// override sets a pointer that the client gave.
func override[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}

func mergeMemory(old, change *specs.LinuxMemory) *specs.LinuxMemory {
	if old == nil || change == nil {
		override(&old, change)
		return old
	}
	m := *old
	override(&m.Limit, change.Limit)
	override(&m.Reservation, change.Reservation)
	override(&m.Swap, change.Swap)
	override(&m.Swappiness, change.Swappiness)
	override(&m.DisableOOMKiller, change.DisableOOMKiller)
	override(&m.CheckBeforeUpdate, change.CheckBeforeUpdate)
	return &m
}

func mergeCPU(old, change *specs.LinuxCPU) *specs.LinuxCPU {
	if old == nil || change == nil {
		override(&old, change)
		return old
	}
	c := *old
	override(&c.Shares, change.Shares)
	override(&c.Quota, change.Quota)
	override(&c.Burst, change.Burst)
	override(&c.Period, change.Period)
	override(&c.RealtimeRuntime, change.RealtimeRuntime)
	override(&c.RealtimePeriod, change.RealtimePeriod)
	override(&c.Idle, change.Idle)
	if change.Cpus != "" {
		c.Cpus = change.Cpus
	}
	if change.Mems != "" {
		c.Mems = change.Mems
	}
	return &c
}

func mergeBlockIO(old, change *specs.LinuxBlockIO) *specs.LinuxBlockIO {
	if old == nil || change == nil {
		override(&old, change)
		return old
	}
	b := *old
	override(&b.Weight, change.Weight)
	override(&b.LeafWeight, change.LeafWeight)
	for _, l := range []struct{ to, from *[]specs.LinuxThrottleDevice }{
		{&b.ThrottleReadBpsDevice, &change.ThrottleReadBpsDevice},
		{&b.ThrottleWriteBpsDevice, &change.ThrottleWriteBpsDevice},
		{&b.ThrottleReadIOPSDevice, &change.ThrottleReadIOPSDevice},
		{&b.ThrottleWriteIOPSDevice, &change.ThrottleWriteIOPSDevice},
	} {
		if *l.from != nil {
			*l.to = *l.from
		}
	}
	if change.WeightDevice != nil {
		b.WeightDevice = change.WeightDevice
	}
	return &b
}

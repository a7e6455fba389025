package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/opencontainers/cgroups"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Update changes the limits that res names, and no other file of the cgroup
// (requirements.md#C3). If a limit cannot be set, the error names it, and Update has
// restored the old limits. undo restores them later. Access to devices cannot
// be changed, but res may repeat the same rules, as CRI does.
func (g *Group) Update(res *specs.LinuxResources) (undo func() error, err error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	// One update at a time: the limits depend on each other, and restoring old limits
	// must not undo another update. Reading and writing these files does not block.
	g.updating.Lock()
	defer g.updating.Unlock()
	undo, err = g.update(h, res)
	if err != nil {
		return nil, fmt.Errorf("update cgroup %s: %w", g.Path(), err)
	}
	return undo, nil
}

func (g *Group) update(h *hierarchies, res *specs.LinuxResources) (undo func() error, err error) {
	if len(res.Devices) > 0 && !reflect.DeepEqual(res.Devices, g.limits.Devices) {
		return nil, errors.New("linux.resources.devices: cannot be changed")
	}
	old := g.limits
	merged := merge(old, res)
	for _, r := range []*specs.LinuxResources{res, merged} {
		if err := h.check(r); err != nil {
			return nil, err
		}
	}
	named := only(res, merged)
	r, err := convert(named, g.record.Version)
	if err != nil {
		return nil, err
	}
	r.SkipDevices = true
	files, err := g.backup(named)
	if err != nil {
		return nil, err
	}
	if err := g.limit(named, r); err != nil {
		return nil, errors.Join(err, files.restore())
	}
	g.limits = merged
	return func() error {
		g.updating.Lock()
		defer g.updating.Unlock()
		g.limits = old
		if err := files.restore(); err != nil {
			return fmt.Errorf("put the limits of cgroup %s back: %w", g.Path(), err)
		}
		return nil
	}, nil
}

// limit writes limits. r is the converted res.
func (g *Group) limit(res *specs.LinuxResources, r *cgroups.Resources) error {
	if err := g.adapt(r); err != nil {
		return err
	}
	m, err := g.manager(r)
	if err != nil {
		return err
	}
	if err := m.Set(r); err != nil {
		return err
	}
	// The library can disable the OOM killer, but not enable it.
	if m := res.Memory; g.record.Version == 1 && m != nil && m.DisableOOMKiller != nil && !*m.DisableOOMKiller && g.Dir("memory") != "" {
		return os.WriteFile(filepath.Join(g.Dir("memory"), "memory.oom_control"), []byte("0"), 0)
	}
	return nil
}

// adapt changes r where this kernel lacks a file and the library would fail needlessly, or
// would ignore a limit.
func (g *Group) adapt(r *cgroups.Resources) error {
	if g.record.Version == 1 {
		if _, err := os.Lstat(filepath.Join(g.Dir("memory"), "memory.memsw.limit_in_bytes")); err != nil && r.MemorySwap == -1 {
			r.MemorySwap = 0 // this kernel does not count swap
		}
		return nil
	}
	if len(r.BlkioWeightDevice) > 0 {
		if _, err := os.Lstat(filepath.Join(g.Dir("blkio"), "io.bfq.weight")); err != nil {
			return fmt.Errorf("linux.resources.blockIO.weightDevice: cannot be set: %w", err)
		}
	}
	return nil
}

// only returns the limits of merged that change names, and the limits that the kernel
// ties to them.
func only(change, merged *specs.LinuxResources) *specs.LinuxResources {
	named := *change
	named.Devices = nil
	if m := change.Memory; m != nil {
		memory := *m
		if m.Limit != nil || m.Swap != nil {
			memory.Limit, memory.Swap, memory.CheckBeforeUpdate = merged.Memory.Limit, merged.Memory.Swap, merged.Memory.CheckBeforeUpdate
		}
		named.Memory = &memory
	}
	if c := change.CPU; c != nil {
		cpu := *c
		if c.Quota != nil || c.Period != nil {
			cpu.Quota, cpu.Period = merged.CPU.Quota, merged.CPU.Period
		}
		if c.RealtimeRuntime != nil || c.RealtimePeriod != nil {
			cpu.RealtimeRuntime, cpu.RealtimePeriod = merged.CPU.RealtimeRuntime, merged.CPU.RealtimePeriod
		}
		named.CPU = &cpu
	}
	return &named
}

// merge returns old with the values that are set in change.
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
	if value(change.Limit) == -1 && value(change.Swap) == 0 && m.Swap != nil {
		m.Swap = change.Limit // without a limit of memory there is none of memory and swap
	}
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

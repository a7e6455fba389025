package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"

	"github.com/opencontainers/cgroups"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Update changes the limits that res names, and no other file of the cgroup
// (requirements.md#C3). If a limit cannot be set, the error names it, and Update has
// restored the old limits. undo restores the old limits later. Access to devices cannot be
// changed, but res may repeat the present rules, as CRI does.
func (g *Group) Update(res *specs.LinuxResources) (undo func() error, err error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	// Allow one update at a time, because limits depend on each other, and the restoring of
	// old limits must not undo another update. Reading and writing these files does not
	// block, and a call of systemd, for an app in a scope, takes at most scopeLimit.
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
	res = withoutZeros(res)
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
	set := func() error {
		if err := g.limit(named, r); err != nil {
			return errors.Join(err, files.restore())
		}
		return nil
	}
	if err := g.changeScope(h, old, merged, set, files.restore); err != nil {
		return nil, err
	}
	g.limits = merged
	return func() error {
		g.updating.Lock()
		defer g.updating.Unlock()
		g.limits = old
		if err := g.changeScope(h, merged, old, files.restore, set); err != nil {
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
	if res.Memory == nil || g.record.Version != 1 || g.Dir("memory") == "" {
		return nil
	}
	return g.limitMemory(res.Memory)
}

// limitMemory writes the files of version 1 that the library does not write: it can disable the
// OOM killer, but not enable it, and has no limit for the kernel's TCP buffers.
func (g *Group) limitMemory(m *specs.LinuxMemory) error {
	if m.DisableOOMKiller != nil && !*m.DisableOOMKiller {
		if err := proc.WriteFile(filepath.Join(g.Dir("memory"), "memory.oom_control"), "0"); err != nil {
			return err
		}
	}
	limit := value(m.KernelTCP)
	if limit == 0 {
		return nil
	}
	file, err := os.OpenFile(filepath.Join(g.Dir("memory"), "memory.kmem.tcp.limit_in_bytes"), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(strconv.FormatInt(limit, 10))
		file.Close()
	}
	if err != nil { // the file is missing on a kernel without this limit
		return fmt.Errorf("linux.resources.memory.kernelTCP: cannot be set: %w", err)
	}
	return nil
}

// adapt changes r where this kernel lacks a file and the library would fail without need,
// or would ignore a limit.
func (g *Group) adapt(r *cgroups.Resources) error {
	if g.record.Version == 1 {
		if r.MemorySwap != -1 {
			return nil
		}
		if _, err := os.Lstat(filepath.Join(g.Dir("memory"), "memory.memsw.limit_in_bytes")); err != nil {
			r.MemorySwap = 0 // this kernel does not account swap
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

// only returns a part of merged: the limits that are set in change, and those that the
// kernel ties to them.
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
	m := overridden(old, change)
	m.Devices = old.Devices // cannot be changed
	m.Memory = overridden(old.Memory, change.Memory)
	m.CPU = overridden(old.CPU, change.CPU)
	m.BlockIO = overridden(old.BlockIO, change.BlockIO)
	if c := change.Memory; c != nil && old.Memory != nil && value(c.Limit) == -1 && value(c.Swap) == 0 && m.Memory.Swap != nil {
		m.Memory.Swap = c.Limit // without a limit of memory, remove the limit of memory and swap together
	}
	return m
}

// overridden returns a copy of a struct with the fields that are set in change. Either may
// be nil.
func overridden[T any](old, change *T) *T {
	if old == nil || change == nil {
		return cmp.Or(old, change)
	}
	merged := *old
	to, from := reflect.ValueOf(&merged).Elem(), reflect.ValueOf(change).Elem()
	for i := range to.NumField() {
		if !from.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return &merged
}

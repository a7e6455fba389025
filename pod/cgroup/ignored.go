package cgroup

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Ignored describes the limits of res that Create and Update do not set, for people:
// limits of zero, if zero means no limit, and the limit of the kernel's memory.
// docs/limits.md says what zero means for each limit.
func Ignored(res *specs.LinuxResources) []string {
	if res == nil {
		return nil
	}
	var all []string
	zero := func(field string, is bool) {
		if is {
			all = append(all, "linux.resources."+field+": 0")
		}
	}
	if m := res.Memory; m != nil {
		zero("memory.limit", isZero(m.Limit))
		zero("memory.reservation", isZero(m.Reservation))
		zero("memory.swap", isZero(m.Swap))
		if m.Kernel != nil { //nolint:staticcheck // clients send it
			all = append(all, fmt.Sprintf("linux.resources.memory.kernel: %d", *m.Kernel)) //nolint:staticcheck // as above
		}
		zero("memory.kernelTCP", isZero(m.KernelTCP))
	}
	if c := res.CPU; c != nil {
		zero("cpu.shares", isZero(c.Shares))
		zero("cpu.quota", isZero(c.Quota))
		zero("cpu.period", isZero(c.Period))
		zero("cpu.realtimeRuntime", isZero(c.RealtimeRuntime))
		zero("cpu.realtimePeriod", isZero(c.RealtimePeriod))
	}
	if b := res.BlockIO; b != nil {
		zero("blockIO.weight", isZero(b.Weight))
		zero("blockIO.leafWeight", isZero(b.LeafWeight))
		for _, d := range b.WeightDevice {
			zero("blockIO.weightDevice.weight", isZero(d.Weight))
			zero("blockIO.weightDevice.leafWeight", isZero(d.LeafWeight))
		}
	}
	if n := res.Network; n != nil {
		zero("network.classID", isZero(n.ClassID))
	}
	return all
}

// isZero reports whether a value was given, and is zero.
func isZero[T comparable](p *T) bool {
	var none T
	return p != nil && *p == none
}

// withoutZeros returns a copy of res without the limits of memory and processors that Ignored names, which would
// replace those that the cgroup has.
func withoutZeros(res *specs.LinuxResources) *specs.LinuxResources {
	r := *res
	if res.Memory != nil {
		m := *res.Memory
		m.Limit, m.Reservation, m.Swap, m.KernelTCP = unlessZero(m.Limit), unlessZero(m.Reservation), unlessZero(m.Swap), unlessZero(m.KernelTCP)
		r.Memory = &m
	}
	if res.CPU != nil {
		c := *res.CPU
		c.Shares, c.Quota, c.Period = unlessZero(c.Shares), unlessZero(c.Quota), unlessZero(c.Period)
		c.RealtimeRuntime, c.RealtimePeriod = unlessZero(c.RealtimeRuntime), unlessZero(c.RealtimePeriod)
		r.CPU = &c
	}
	return &r
}

// unlessZero returns the pointer, or nil if the value is zero.
func unlessZero[T comparable](p *T) *T {
	if isZero(p) {
		return nil
	}
	return p
}

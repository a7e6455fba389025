package cgroup

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// property is a property of a unit of systemd's. Its value is a uint64, or a []byte that has a set of
// processors or memory nodes.
type property struct {
	name  string
	value any
	since int // the first version of systemd that has the property; 0 if any that is met has it
}

// unset is the value with which a property is as if it had never been set, except for those in
// unsetOf.
const unset = uint64(math.MaxUint64)

var unsetOf = map[string]any{"MemoryLow": uint64(0), "MemoryMin": uint64(0), "AllowedCPUs": []byte{}, "AllowedMemoryNodes": []byte{}}

// ceilings lists the properties that bound cgroups below the unit.
var ceilings = []string{"MemoryLimit", "MemoryMax", "MemoryHigh", "MemorySwapMax", "TasksMax", "CPUQuotaPerSecUSec"}

// placeholderTasks is how many of the tasks in a scope are the placeholder's.
const placeholderTasks = 1

// properties are those of a unit, each of which occurs once.
type properties []property

// scopeLimits returns the limits of an app as properties of its scope. A weight counts only among siblings, a
// protection only as far as the cgroup above has one, and programs such as cAdvisor read the scope. Values that
// systemd would refuse are left out: the app's cgroup decides about them.
func scopeLimits(res *specs.LinuxResources, version int) (properties, error) {
	r, err := convert(res, version)
	if err != nil {
		return nil, err
	}
	var p properties
	p.tasks(r.PidsLimit)
	p.quota(r.CpuQuota, r.CpuPeriod)
	if version == 1 {
		p.version1(r)
		return p, nil
	}
	return p, p.version2(r)
}

func (p *properties) version1(r *cgroups.Resources) {
	if r.Memory != 0 && !r.OomKillDisable { // an OOM of the scope kills, whatever the app's cgroup says
		p.set("MemoryLimit", uint64(r.Memory), 0)
	}
	p.within("CPUShares", r.CpuShares, fewestShares, mostShares)
	p.within("BlockIOWeight", uint64(r.BlkioWeight), 10, 1000)
}

func (p *properties) version2(r *cgroups.Resources) error {
	if r.Memory != 0 {
		p.set("MemoryMax", uint64(r.Memory), 0)
	}
	if r.MemoryReservation != 0 {
		p.set("MemoryLow", uint64(r.MemoryReservation), 0)
	}
	swap, err := cgroups.ConvertMemorySwapToCgroupV2Value(r.MemorySwap, r.Memory)
	if err != nil {
		return err
	}
	if r.MemorySwap != 0 || swap != 0 {
		p.set("MemorySwapMax", uint64(swap), 0)
	}
	p.weight(r.CpuWeight, r.CPUIdle != nil && *r.CPUIdle == 1)
	p.within("IOWeight", cgroups.ConvertBlkIOToIOWeightValue(r.BlkioWeight), 1, 10000)
	p.cpuset("AllowedCPUs", r.CpusetCpus)
	p.cpuset("AllowedMemoryNodes", r.CpusetMems)
	for name, text := range r.Unified {
		p.file(name, strings.Fields(text), r.Unified)
	}
	return nil
}

// file sets the property of a file of version 2. A file without a property is the app's alone: the kernel looks
// for memory.oom.group from the killed process upwards.
func (p *properties) file(name string, fields []string, all map[string]string) {
	if len(fields) == 0 {
		return
	}
	last := fields[len(fields)-1]
	n, ok := amount(last)
	switch name {
	case "memory.max", "memory.high", "memory.low", "memory.min", "memory.swap.max":
		property := map[string]string{
			"memory.max": "MemoryMax", "memory.high": "MemoryHigh", "memory.low": "MemoryLow", "memory.min": "MemoryMin",
			"memory.swap.max": "MemorySwapMax",
		}[name]
		if ok {
			p.set(property, n, map[string]int{"MemoryMin": 240}[property])
		}
	case "pids.max":
		if limit := int64(min(n, math.MaxInt64)); ok && limit < math.MaxInt64 {
			p.tasks(&limit)
		} else if ok {
			p.tasks(nil)
		}
	case "cpu.weight":
		if ok {
			p.weight(n, strings.TrimSpace(all["cpu.idle"]) == "1")
		}
	case "cpu.idle":
		p.weight(0, last == "1")
	case "io.weight": // "default 100", or a device's
		if ok && (len(fields) == 1 || fields[0] == "default") {
			p.within("IOWeight", n, 1, 10000)
		}
	case "cpuset.cpus":
		p.cpuset("AllowedCPUs", last)
	case "cpuset.mems":
		p.cpuset("AllowedMemoryNodes", last)
	case "cpu.max":
		quota, ok := amount(fields[0])
		period := uint64(0)
		if len(fields) == 2 {
			period = n
		}
		if ok {
			p.quota(int64(min(quota, math.MaxInt64)), period)
		}
	}
}

// amount reads a number as the kernel does: "max", or bytes with a suffix.
func amount(text string) (uint64, bool) {
	if text == "max" {
		return unset, true
	}
	shift := 0
	if i := strings.IndexAny(text, "kKmMgG"); i > 0 && i == len(text)-1 {
		shift = map[byte]int{'k': 10, 'm': 20, 'g': 30}[text[i]|0x20]
		text = text[:i]
	}
	n, err := strconv.ParseUint(text, 10, 64-shift)
	return n << shift, err == nil
}

func (p *properties) set(name string, value any, since int) {
	made := property{name, value, since}
	if i := slices.IndexFunc(*p, func(q property) bool { return q.name == name }); i >= 0 {
		(*p)[i] = made
		return
	}
	*p = append(*p, made)
}

// within sets a weight if systemd accepts it.
func (p *properties) within(name string, n, least, most uint64) {
	if n >= least && n <= most {
		p.set(name, n, 0)
	}
}

// weight sets the weight of a scope of version 2. With 0 systemd makes it idle.
func (p *properties) weight(n uint64, idle bool) {
	if idle {
		p.set("CPUWeight", uint64(0), 252)
		return
	}
	p.within("CPUWeight", n, 1, 10000)
}

// tasks sets the limit of tasks. nil and -1 mean none. Without a value systemd would set a default.
func (p *properties) tasks(limit *int64) {
	if limit == nil || *limit < 0 {
		p.set("TasksMax", unset, 0)
		return
	}
	p.set("TasksMax", uint64(max(*limit, 1))+placeholderTasks, 0) // the kernel's minimum is 1, too
}

const (
	defaultPeriod  = 100_000                   // µs
	shortestPeriod = 1_000                     // µs
	longestPeriod  = 1_000_000                 // µs
	percent        = 10_000                    // µs for a second
	longestQuota   = math.MaxInt64 / 1_000_000 // µs of a period; more is no limit
)

// quota sets the processor time. systemd counts it in whole percents. They are rounded up, because version 1 refuses
// a quota in the app's cgroup that is more than the scope's. A quota that is not positive means none.
func (p *properties) quota(quota int64, period uint64) {
	if quota == 0 && period == 0 {
		return
	}
	if period >= shortestPeriod && period <= longestPeriod {
		p.set("CPUQuotaPeriodUSec", period, 242)
	}
	perSecond := unset
	if quota > 0 && quota <= longestQuota {
		time := uint64(quota) * 1_000_000 / cmp.Or(period, defaultPeriod)
		perSecond = max((time+percent-1)/percent, 1) * percent
	}
	p.set("CPUQuotaPerSecUSec", perSecond, 0)
}

// cpuset sets processors or memory nodes, which are written as in "0-3,7".
func (p *properties) cpuset(name, list string) {
	var bits big.Int
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil {
			return
		}
		for i := from; i <= to; i++ {
			bits.SetBit(&bits, int(i), 1)
		}
	}
	set := bits.Bytes()
	slices.Reverse(set) // systemd wants the lowest byte first
	p.set(name, set, 244)
}

// of returns the value of a property, or the one with which it is not set.
func (p properties) of(name string) any {
	if i := slices.IndexFunc(p, func(q property) bool { return q.name == name }); i >= 0 {
		return p[i].value
	}
	if none, ok := unsetOf[name]; ok {
		return none
	}
	return unset
}

// without returns what has to be set so that a unit with the properties from has those of p. Properties that
// only from has are unset.
func (p properties) without(from properties) (changed properties) {
	for _, q := range p {
		if !same(q.value, from.of(q.name)) {
			changed = append(changed, q)
		}
	}
	for _, q := range from {
		if none := p.of(q.name); !p.has(q.name) && !same(none, q.value) {
			changed = append(changed, property{q.name, none, q.since})
		}
	}
	return changed
}

func same(a, b any) bool {
	x, ok := a.([]byte)
	y, ok2 := b.([]byte)
	if ok || ok2 {
		return ok && ok2 && bytes.Equal(x, y)
	}
	return a == b
}

// raised returns those properties that are higher bounds than the ones of from.
func (p properties) raised(from properties) (higher properties) {
	for _, q := range p {
		if slices.Contains(ceilings, q.name) && q.value.(uint64) > from.of(q.name).(uint64) {
			higher = append(higher, q)
		}
	}
	return higher
}

// only returns the properties whose names others have.
func (p properties) only(others properties) properties {
	return slices.DeleteFunc(slices.Clone(p), func(q property) bool { return !others.has(q.name) })
}

// except returns the properties whose names no others have.
func (p properties) except(others properties) properties {
	return slices.DeleteFunc(slices.Clone(p), func(q property) bool { return others.has(q.name) })
}

func (p properties) has(name string) bool {
	return slices.ContainsFunc(p, func(q property) bool { return q.name == name })
}

// known returns the properties that a version of systemd has.
func (p properties) known(version int) properties {
	return slices.DeleteFunc(slices.Clone(p), func(q property) bool { return q.since > version })
}

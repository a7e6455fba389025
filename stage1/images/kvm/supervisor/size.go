package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// Size is a size of a machine.
type Size struct {
	CPUs   int
	Memory int64 // bytes
}

// Resizer is a machine whose size can change while it runs.
type Resizer interface {
	Resize(ctx context.Context, cpus int, memory int64) error
}

// Sizes are the sizes that a machine may have. Memory beyond Boot is given in units of 2 MiB.
type Sizes struct {
	Base Size // for the machine itself and the apps without limits
	Boot Size // with which it boots, and below which it does not go
	Max  Size
	// Fixed is a machine that does not grow. Limits that are larger than the machine are refused.
	Fixed bool
}

// Fix returns the sizes of a machine that keeps that of its boot.
func (z Sizes) Fix() Sizes {
	z.Max, z.Fixed = z.Boot, true
	return z
}

// memoryUnit is the unit in bytes in which machines get and lose memory.
const memoryUnit = 2 << 20

// PlanSizes returns the sizes of a machine whose pod has limits: an OCI linux.resources object, or
// nil. The machine boots with the size that they ask for.
func PlanSizes(base, most Size, resources []byte) (Sizes, error) {
	var l limits
	if len(resources) > 0 {
		var r specs.LinuxResources
		if err := json.Unmarshal(resources, &r); err != nil {
			return Sizes{}, fmt.Errorf("the limits of the pod: %w", err)
		}
		l = l.with(&r)
	}
	z := Sizes{Base: base, Max: most, Boot: base}
	z.Max.Memory = base.Memory + (most.Memory-base.Memory)/memoryUnit*memoryUnit
	z.Boot, _ = z.fitting(l.demand())
	return z, nil
}

// fitting returns the size for a demand, and whether that is less than the demand.
func (z *Sizes) fitting(d demand) (want Size, less bool) {
	want.CPUs = z.Base.CPUs + int(min((d.cpu+999)/1000, maxDemand.cpu))
	want.Memory = z.Base.Memory + (d.memory+memoryUnit-1)/memoryUnit*memoryUnit
	less = want.CPUs > z.Max.CPUs || want.Memory > z.Max.Memory
	want.CPUs = max(z.Boot.CPUs, min(want.CPUs, z.Max.CPUs))
	want.Memory = max(z.Boot.Memory, min(want.Memory, z.Max.Memory))
	return want, less
}

// checkFixed returns an error for limits that a machine cannot meet that does not grow.
func (z *Sizes) checkFixed(d demand) error {
	const advice = "and the machine, which does not grow, has %d: lower them, or have the pod ask for a larger machine or for the type %s"
	switch {
	case d.memory > z.Boot.Memory:
		return serve.Unsupported("linux.resources.memory: the limits of the apps are %d MiB, "+advice, d.memory>>20, z.Boot.Memory>>20, machine.Q35)
	case d.cpu > int64(z.Boot.CPUs)*1000:
		return serve.Unsupported("linux.resources.cpu: the limits of the apps are %d.%03d processors, "+advice, d.cpu/1000, d.cpu%1000, z.Boot.CPUs, machine.Q35)
	}
	return nil
}

// limits are those of an app that decide on the size of its machine. 0 and less is no limit.
type limits struct {
	memory, quota int64
	period        uint64
}

// with returns the limits after an update. A limit that the update does not have, or that is 0, stays.
func (l limits) with(r *specs.LinuxResources) limits {
	if r == nil {
		return l
	}
	if m := r.Memory; m != nil && m.Limit != nil && *m.Limit != 0 {
		l.memory = *m.Limit
	}
	if c := r.CPU; c != nil {
		if c.Quota != nil && *c.Quota != 0 {
			l.quota = *c.Quota
		}
		if c.Period != nil && *c.Period != 0 {
			l.period = *c.Period
		}
	}
	return l.unified(r.Unified)
}

// unified is with for limits in the words of cgroup version 2, which say more than the others. A word that is no number
// is for the machine's kernel to refuse.
func (l limits) unified(files map[string]string) limits {
	if n, err := strconv.ParseInt(files["memory.max"], 10, 64); err == nil {
		l.memory = n
	} else if files["memory.max"] == "max" {
		l.memory = -1
	}
	if words := strings.Fields(files["cpu.max"]); len(words) > 0 {
		if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
			l.quota = n
		} else if words[0] == "max" {
			l.quota = -1
		}
		if len(words) > 1 {
			if n, err := strconv.ParseUint(words[1], 10, 64); err == nil && n > 0 {
				l.period = n
			}
		}
	}
	return l
}

// demand is what the limits of apps ask for.
type demand struct{ cpu, memory int64 } // thousandths of processors, and bytes

// maxDemand is more than any machine can have. Clients write large numbers in place of no limit.
var maxDemand = demand{cpu: 1_000_000, memory: 1 << 50}

// defaultPeriod is the kernel's period in microseconds.
const defaultPeriod = 100_000

func (l limits) demand() (d demand) {
	d.memory = max(0, min(l.memory, maxDemand.memory))
	if l.quota > 0 {
		period := float64(l.period)
		if l.period == 0 {
			period = defaultPeriod
		}
		d.cpu = int64(math.Ceil(min(float64(l.quota)/period*1000, float64(maxDemand.cpu))))
	}
	return d
}

func (d demand) plus(e demand) demand {
	return demand{min(d.cpu+e.cpu, maxDemand.cpu), min(d.memory+e.memory, maxDemand.memory)}
}

// limited is d without what stands for no limit.
func (d demand) limited() demand {
	if d.cpu == maxDemand.cpu {
		d.cpu = 0
	}
	if d.memory == maxDemand.memory {
		d.memory = 0
	}
	return d
}

func (d demand) larger(e demand) demand { return demand{max(d.cpu, e.cpu), max(d.memory, e.memory)} }

// fit gives the machine the size that the limits of its apps ask for now. Only the call that has the
// turn uses s.size. The machine may get less than the limits ask for, as a host may have less.
func (s *Supervisor) fit(ctx context.Context) error {
	select {
	case s.sizing <- struct{}{}:
		defer func() { <-s.sizing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var sum demand
	s.mu.Lock()
	for _, a := range s.apps {
		d := a.demand
		if s.Sizes.Fixed {
			d = d.limited()
		}
		sum = sum.plus(d)
	}
	s.mu.Unlock()
	if s.Sizes.Fixed {
		return s.Sizes.checkFixed(sum)
	}
	want, less := s.Sizes.fitting(sum)
	if want == s.size {
		return nil
	}
	if less {
		fmt.Fprintf(s.Log, "the limits of the apps ask for %d.%03d processors and %d MiB more than the machine has for itself: it gets %d processors and %d MiB, the most that it can have\n",
			sum.cpu/1000, sum.cpu%1000, sum.memory>>20, want.CPUs, want.Memory>>20)
	}
	s.size = Size{} // unknown, if one of these fails
	err := s.Resizer.Resize(ctx, want.CPUs, want.Memory)
	if err == nil {
		_, err = s.ask(ctx, channel.Header{Size: &channel.Size{CPUs: want.CPUs}}, nil)
	}
	if err != nil {
		return fmt.Errorf("give the machine %d processors and %d MiB: %w", want.CPUs, want.Memory>>20, err)
	}
	s.size = want
	return nil
}

// shrink takes back what an app had that is gone. If that fails the machine keeps it, until the next
// change of its size.
func (s *Supervisor) shrink(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.fit(ctx); err != nil && s.ctx.Err() == nil {
		fmt.Fprintln(s.Log, err)
	}
}

// setDemand sets what an app demands of its machine.
func (s *Supervisor) setDemand(a *app, d demand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.demand = d
}

// update serves app/update: the machine grows before the limits of an app do, and shrinks after them.
func (s *Supervisor) update(ctx context.Context, a *app, request *abi.Request) (err error) {
	var r specs.LinuxResources
	if err := json.Unmarshal(request.Resources, &r); err != nil {
		return fmt.Errorf("the limits: %w", err)
	}
	changed := a.limits.with(&r)
	s.setDemand(a, a.limits.demand().larger(changed.demand()))
	if err = s.fit(ctx); err == nil {
		err = s.pass(ctx, request)
	}
	if err == nil {
		a.limits = changed
	}
	s.setDemand(a, a.limits.demand())
	s.shrink(ctx)
	return err
}

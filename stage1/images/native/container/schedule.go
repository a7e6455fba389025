package container

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func parseScheduler(s *specs.Scheduler) (*unix.SchedAttr, error) {
	if s == nil {
		return nil, nil
	}
	policies := map[specs.LinuxSchedulerPolicy]uint32{
		specs.SchedOther: unix.SCHED_NORMAL, specs.SchedFIFO: unix.SCHED_FIFO, specs.SchedRR: unix.SCHED_RR,
		specs.SchedBatch: unix.SCHED_BATCH, specs.SchedIdle: unix.SCHED_IDLE, specs.SchedDeadline: unix.SCHED_DEADLINE,
	}
	flags := map[specs.LinuxSchedulerFlag]uint64{
		specs.SchedFlagResetOnFork:  unix.SCHED_FLAG_RESET_ON_FORK,
		specs.SchedFlagReclaim:      unix.SCHED_FLAG_RECLAIM,
		specs.SchedFlagDLOverrun:    unix.SCHED_FLAG_DL_OVERRUN,
		specs.SchedFlagKeepPolicy:   unix.SCHED_FLAG_KEEP_POLICY,
		specs.SchedFlagKeepParams:   unix.SCHED_FLAG_KEEP_PARAMS,
		specs.SchedFlagUtilClampMin: unix.SCHED_FLAG_UTIL_CLAMP_MIN,
		specs.SchedFlagUtilClampMax: unix.SCHED_FLAG_UTIL_CLAMP_MAX,
	}
	policy, ok := policies[s.Policy]
	if !ok {
		return nil, refuse("process.scheduler.policy", "%q is not supported", s.Policy)
	}
	attr := &unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   policy,
		Nice:     s.Nice,
		Priority: uint32(s.Priority),
		Runtime:  s.Runtime,
		Deadline: s.Deadline,
		Period:   s.Period,
	}
	for _, f := range s.Flags {
		flag, ok := flags[f]
		if !ok {
			return nil, refuse("process.scheduler.flags", "%q is not supported", f)
		}
		attr.Flags |= flag
	}
	return attr, nil
}

func parseIOPriority(p *specs.LinuxIOPriority) (*int, error) {
	if p == nil {
		return nil, nil
	}
	classes := map[specs.IOPriorityClass]int{
		specs.IOPRIO_CLASS_RT: 1, specs.IOPRIO_CLASS_BE: 2, specs.IOPRIO_CLASS_IDLE: 3,
	}
	class, ok := classes[p.Class]
	if !ok {
		return nil, refuse("process.ioPriority.class", "%q is not supported", p.Class)
	}
	if p.Priority < 0 || p.Priority > 7 {
		return nil, fmt.Errorf("process.ioPriority.priority: %d is not within 0 to 7", p.Priority)
	}
	const classShift = 13
	value := class<<classShift | p.Priority
	return &value, nil
}

func parsePersonality(p *specs.LinuxPersonality) (*uint32, error) {
	if p == nil {
		return nil, nil
	}
	if len(p.Flags) > 0 {
		return nil, refuse("linux.personality.flags", "%q is not supported", p.Flags[0])
	}
	domains := map[specs.LinuxPersonalityDomain]uint32{specs.PerLinux: 0, specs.PerLinux32: 8}
	domain, ok := domains[p.Domain]
	if !ok {
		return nil, refuse("linux.personality.domain", "%q is not supported", p.Domain)
	}
	return &domain, nil
}

// affinity sets the CPU affinity of an exec: its own, or the one that the app's spec has
// for execs.
func (r *process) affinity(p, app *specs.Process) (err error) {
	a := p.ExecCPUAffinity
	if a == nil && app != nil {
		a = app.ExecCPUAffinity
	}
	if a == nil {
		return nil
	}
	if r.InitialCPUs, err = parseNumbers(a.Initial); err != nil {
		return fmt.Errorf("process.execCPUAffinity.initial: %w", err)
	}
	if r.FinalCPUs, err = parseNumbers(a.Final); err != nil {
		return fmt.Errorf("process.execCPUAffinity.final: %w", err)
	}
	return nil
}

// parseNumbers reads a list of CPUs or memory nodes, such as "0-3,7".
func parseNumbers(list string) ([]int, error) {
	var cpus []int
	if list == "" {
		return nil, nil
	}
	const most = 1024 // of a unix.CPUSet, which is used for nodes, too
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || a > b || b >= most {
			return nil, fmt.Errorf("%q is not a list such as 0-3,7", list)
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, int(c))
		}
	}
	return cpus, nil
}

func setAffinity(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return doing("set the CPU affinity", unix.SchedSetaffinity(0, &set))
}

// schedule applies policy and I/O priority to this thread.
func (r *process) schedule() error {
	if r.Scheduler != nil {
		if err := unix.SchedSetAttr(0, r.Scheduler, 0); err != nil {
			return fmt.Errorf("set the scheduling policy: %w", err)
		}
	}
	if r.IOPriority != nil {
		const process = 1 // IOPRIO_WHO_PROCESS
		if _, _, e := unix.RawSyscall(unix.SYS_IOPRIO_SET, process, 0, uintptr(*r.IOPriority)); e != 0 {
			return fmt.Errorf("set the I/O priority: %w", e)
		}
	}
	return nil
}

func setPersonality(domain *uint32) error {
	if domain == nil {
		return nil
	}
	if _, _, e := unix.RawSyscall(unix.SYS_PERSONALITY, uintptr(*domain), 0, 0); e != 0 {
		return fmt.Errorf("set the personality: %w", e)
	}
	return nil
}

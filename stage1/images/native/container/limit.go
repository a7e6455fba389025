package container

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc/nofile"
)

func rlimitResources() map[string]int {
	return map[string]int{
		"RLIMIT_AS":         unix.RLIMIT_AS,
		"RLIMIT_CORE":       unix.RLIMIT_CORE,
		"RLIMIT_CPU":        unix.RLIMIT_CPU,
		"RLIMIT_DATA":       unix.RLIMIT_DATA,
		"RLIMIT_FSIZE":      unix.RLIMIT_FSIZE,
		"RLIMIT_LOCKS":      unix.RLIMIT_LOCKS,
		"RLIMIT_MEMLOCK":    unix.RLIMIT_MEMLOCK,
		"RLIMIT_MSGQUEUE":   unix.RLIMIT_MSGQUEUE,
		"RLIMIT_NICE":       unix.RLIMIT_NICE,
		"RLIMIT_NOFILE":     unix.RLIMIT_NOFILE,
		"RLIMIT_NPROC":      unix.RLIMIT_NPROC,
		"RLIMIT_RSS":        unix.RLIMIT_RSS,
		"RLIMIT_RTPRIO":     unix.RLIMIT_RTPRIO,
		"RLIMIT_RTTIME":     unix.RLIMIT_RTTIME,
		"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING,
		"RLIMIT_STACK":      unix.RLIMIT_STACK,
	}
}

// parseRlimits translates the limits.
func parseRlimits(spec []specs.POSIXRlimit) ([]rlimit, error) {
	resources := rlimitResources()
	seen := make(map[int]bool)
	var limits []rlimit
	for _, l := range spec {
		r, ok := resources[l.Type]
		if !ok {
			return nil, refuse("process.rlimits", "type %q is not known", l.Type)
		}
		if seen[r] {
			return nil, fmt.Errorf("process.rlimits: type %q appears twice", l.Type)
		}
		if l.Soft > l.Hard {
			return nil, fmt.Errorf("process.rlimits: soft limit %d of %s is above the hard one, %d", l.Soft, l.Type, l.Hard)
		}
		seen[r] = true
		limits = append(limits, rlimit{l.Type, r, l.Soft, l.Hard})
	}
	return limits, nil
}

// withFiles adds the limit of open files with which this process was started, unless the
// spec has one. Without it the program would get the limit to which the Go runtime has
// raised this process's.
func withFiles(limits []rlimit) []rlimit {
	if slices.ContainsFunc(limits, func(l rlimit) bool { return l.Resource == unix.RLIMIT_NOFILE }) {
		return limits
	}
	first := nofile.Original
	return append(limits, rlimit{"RLIMIT_NOFILE", unix.RLIMIT_NOFILE, first[0], first[1]})
}

// raise raises the hard limit of a process (0: this one) to the one that it will set for
// itself in the end. Raising may be refused, so it is done early. Lowering always succeeds,
// and is done last, because a small limit could make the steps before the exec fail.
func (l rlimit) raise(pid int) error {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, l.Resource, nil, &now); err != nil {
		return fmt.Errorf("read %s: %w", l.Name, err)
	}
	if now.Max >= l.Hard {
		return nil
	}
	now.Max = l.Hard
	if err := unix.Prlimit(pid, l.Resource, &now, nil); err != nil {
		return fmt.Errorf("set %s to %d:%d: %w", l.Name, l.Soft, l.Hard, err)
	}
	return nil
}

// adjustOOM sets the OOM score of a process ("self": this one).
func adjustOOM(pid string, score *int) error {
	if score == nil {
		return nil
	}
	proc, err := openProcfs()
	if err == nil {
		defer proc.close()
		err = proc.write(pid+"/oom_score_adj", strconv.Itoa(*score))
	}
	if errors.Is(err, unix.EACCES) {
		// Docker takes an error with the words "permission denied" for one of the program, and returns 126.
		return fmt.Errorf("failed to update /proc/%s/oom_score_adj to %d: the kernel refuses a lower score to a process without CAP_SYS_RESOURCE", pid, *score)
	}
	if err != nil {
		return fmt.Errorf("failed to update /proc/%s/oom_score_adj to %d: %w", pid, *score, err)
	}
	return nil
}

// raiseAll raises all limits and sets the OOM score of a process.
func (p *process) raiseAll(pid int) error {
	for _, l := range p.Rlimits {
		if err := l.raise(pid); err != nil {
			return err
		}
	}
	name := "self"
	if pid != 0 {
		name = strconv.Itoa(pid)
	}
	return adjustOOM(name, p.OOMScoreAdj)
}

// Limit sets the rlimits and the OOM score of a process that cannot do so itself, because
// it is in a user namespace or has no /proc that it can trust. The supervisor calls it when
// the process sends "limits", and then answers "go".
func (p *Prepared) Limit(pid int) error { return p.process.raiseAll(pid) }

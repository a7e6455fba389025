package rktabi

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// mainPID returns the host pid of an app's first process. With rkt's images with systemd this
// is the first process from the supervisor down that is in the cgroup of the app's unit,
// otherwise the process that `enter` gets.
func (s *adapter) mainPID(c pod.Call) int {
	leader := s.Leader(c)
	if pid := firstFrom(leader, func(pid int) bool { return inUnit(pid, c.Request.App) }); pid != 0 {
		return pid
	}
	return leader
}

// firstFrom returns the matching process that is nearest to pid, from pid itself down, or 0.
func firstFrom(pid int, match func(pid int) bool) int {
	for queue := []int{pid}; len(queue) > 0; {
		next := queue[0]
		if match(next) {
			return next
		}
		queue = append(queue[1:], immutable.ChildrenOf(next)...)
	}
	return 0
}

// inUnit reports whether a process is in the cgroup of a unit of systemd's.
func inUnit(pid int, unit string) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(text)) {
		if strings.Contains(strings.TrimSpace(line)+"/", "/"+unit+".service/") {
			return true
		}
	}
	return false
}

// signalPID signals the process that has a pid now.
func signalPID(pid int, sig syscall.Signal) error {
	err := proc.Signal(pid, 0, sig)
	if errors.Is(err, proc.ErrGone) {
		return proc.ErrGone
	}
	return err
}

// entered returns the program that a call of `enter` has started or become, or 0 if there is
// none yet: the nearest process, from the call itself down, that is no longer the entrypoint
// and has another root than the machine, where `enter` may have helpers.
func entered(enter int, entrypoint string) int {
	return firstFrom(enter, func(pid int) bool { return !isCall(pid, entrypoint) && hasItsOwnRoot(pid) })
}

// hasItsOwnRoot reports whether the root of a process is not that of the machine. A process
// that has ended has none.
func hasItsOwnRoot(pid int) bool {
	machines, err := sameFile(fmt.Sprintf("/proc/%d/root", pid), "/")
	return err == nil && !machines
}

// sameFile reports whether two paths lead to the same file, such as a root or a namespace.
func sameFile(a, b string) (bool, error) {
	first, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second), err
}

// isCall reports whether a process still is an entrypoint, or a fork of it. A program has its
// path as first argument, a script after that of its interpreter.
func isCall(pid int, entrypoint string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(text), "\x00")
	return slices.Contains(args[:min(3, len(args))], entrypoint)
}

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

// mainPID returns the host pid of an app's first process. With rkt's images with systemd
// this is the process nearest to the supervisor that is in the cgroup of the app's unit.
// With other images it is the process that `enter` gets.
func (s *adapter) mainPID(c pod.Call) int {
	leader := s.Leader(c)
	if pid := firstFrom(leader, func(pid int) bool { return inUnit(pid, c.Request.App) }); pid != 0 {
		return pid
	}
	return leader
}

// firstFrom returns the matching process nearest to pid: pid itself or a descendant. It
// returns 0 if there is none.
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

// entered returns the program that a call of `enter` has started or become, or 0 if there
// is none yet. This is the process nearest to enter that no longer runs the entrypoint and
// whose root differs from the machine's. `enter` may have helpers in the machine's root.
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

// isCall reports whether a process still runs an entrypoint, or is a fork of it. In the
// command line of a program, the first word is the program's path; in that of a script, the
// path follows the interpreter.
func isCall(pid int, entrypoint string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(text), "\x00")
	return slices.Contains(args[:min(3, len(args))], entrypoint)
}
